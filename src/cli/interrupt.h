// Ctrl-C: the first asks for a clean end, the second ends the program.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice {

// Installs the handler (and ignores SIGPIPE, so that a closed pipe is a write error).
void watch_interrupts();
bool interrupted();
// What a command that was interrupted ends with; `what` says what became of its work.
tl::unexpected<Error> interrupted_error(const std::string& what = "");
// Forgets an interrupt that was dealt with (a chat ends only the answer).
void clear_interrupt();

}  // namespace sluice
