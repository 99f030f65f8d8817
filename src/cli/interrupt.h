// Ctrl-C: the first asks for a clean end, the second ends the program.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice {

// Installs the handler (and ignores SIGPIPE, so that a closed pipe is a write error).
void watch_interrupts();
bool interrupted();
bool interrupted_by_terminate();  // SIGTERM: a service manager's, not somebody at the keyboard
// Waits until stdin can be read without waiting (also at its end). False when an interrupt comes first, or came before.
bool wait_for_stdin();
// Can be read once an interrupt has come; for poll().
int interrupt_descriptor();
// Waits for an interrupt, or for nothing if one came before; `at_most_ms`: milliseconds, -1: as long as it takes.
void wait_for_interrupt(int at_most_ms = -1);
// What a command that was interrupted ends with; `what` says what became of its work.
tl::unexpected<Error> interrupted_error(const std::string& what = "");
// Forgets an interrupt that was dealt with (a chat ends only the answer).
void clear_interrupt();

}  // namespace sluice
