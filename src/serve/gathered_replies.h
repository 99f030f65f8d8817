// One reply made of several.
#pragma once

#include <memory>
#include <vector>

#include "serve/http_server.h"

namespace sluice {

// So many exchanges; when each has its reply, the client gets a list of them, in this order. If one is an error, the
// client gets that, and the others have nobody to answer any more (on_gone). REQUIRES: none is given a stream.
std::vector<std::shared_ptr<Exchange>> gather_replies(const std::shared_ptr<Exchange>& client, size_t n);

}  // namespace sluice
