// Ctrl-C: the first asks for a clean end, the second ends the program.
#pragma once

namespace sluice {

// Installs the handler (and ignores SIGPIPE, so that a closed pipe is a write error).
void watch_interrupts();
bool interrupted();
// Forgets an interrupt that was dealt with (a chat ends only the answer).
void clear_interrupt();

}  // namespace sluice
