// What is said on a processor that lacks what the program was compiled for.
#pragma once

namespace sluice {

// From now on an instruction that the processor does not have ends the program with a line that says so, status 1. This
// is called by itself before other files' statics are made, and once more by main(), so that it is linked.
void report_illegal_instructions();

}  // namespace sluice
