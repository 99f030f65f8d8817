// How many rows of prompts enter at a time.
#pragma once

#include <cstddef>

#include "base/pass_times.h"

namespace sluice {

// With how many rows a batch stages are soonest through with prompts of `rows` rows in all. n equal stages are through
// with k full batches of c rows and a last one of r < c after (k + n - 1) t(c) + t(r) seconds: each batch waits for the
// one before it, which never takes less time. So wide batches let most stages wait at the beginning and the end, and
// narrow ones read the weights often.
// times: what passes of prompts take. As long as they don't tell what a pass costs from what a row does, `usual` or
// half of it; never more than `most`, nor far more than was seen.
size_t prompt_chunk(size_t rows, size_t stages, const PassTimes& times, size_t usual, size_t most);

// As many rows of prompts, from 1 to `most`, as may be in every batch beside `beside` other rows so that a row comes
// in and through all stages within so many seconds. As long as `times` know nothing it is few.
size_t prompt_rows_within(double seconds, size_t beside, size_t stages, const PassTimes& times, size_t most);

}  // namespace sluice
