// What must be true of every trace, read off the trace alone.
#pragma once

#include <string>

#include "engine/trace.h"

namespace sluice::test {

// Each of these gives "" or what is wrong, with the batch and stage where.

// Every batch passes every stage once, in order of batches, one at a time; a stage takes a batch when it is there and
// the stage free, not before and (`promptly`: simulated, and links cost nothing) not after. On a real clock the last
// reports come after the run has ended, and so are not in the trace.
std::string check_order(const Trace& trace, bool promptly);

// Every row of a request that has ended has one fate, resolved after its batch was submitted, and accepted rows of a
// request lie one a position.
std::string check_fates(const Trace& trace);

// A row whose branch was pruned before a stage began with its batch was not computed there, and every other row was.
// (The last stage knows more, and may compute less.) For links that cost nothing.
std::string check_cancels(const Trace& trace);

// Batches, rows, fates, spans and emissions are the same: the first difference.
std::string difference(const Trace& a, const Trace& b);

}  // namespace sluice::test
