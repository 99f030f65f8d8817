// The processes that a test's own has started.
#pragma once

#include <sys/types.h>

#include <set>

namespace sluice::test {

std::set<pid_t> children();
// Ends those that are not among these, as the system does where there is no more memory.
void stop_children_but(const std::set<pid_t>& these);

}  // namespace sluice::test
