// Where results go: stdout and the files that options name.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice {

// Takes the place of what was closed when the program started (`sluice run >&-`), so that no file that is opened later
// becomes stdout or stderr by its number. What is written there fails.
void occupy_standard_streams();

// Writes to stdout; an error if it can't be written.
Status print(const std::string& text);

// Says on stderr, in a line, what went wrong; gives the exit status.
int report(const Error& error);

// Whether a file can be written there, found out before hours of work instead of after: an input error that names
// `option`. Leaves no file behind.
Status check_writable(const std::string& option, const std::string& path);

}  // namespace sluice
