// Where the program keeps what it can always make again.
#pragma once

#include <string>

namespace sluice {

// $XDG_CACHE_HOME/sluice, or ~/.cache/sluice. It need not exist.
std::string cache_folder();

}  // namespace sluice
