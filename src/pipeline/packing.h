// The states of a batch between processes, where they travel as f16.
#pragma once

#include "wire/batch.h"

namespace sluice {

// In half the bytes, and back. They were rounded where they were computed (StageOptions::rounded), so no bit is lost.
void pack_states(Batch& batch);
void unpack_states(Batch& batch);

}  // namespace sluice
