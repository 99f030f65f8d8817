// Broken invariants in tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/result.h"

// Expects the statement to break an invariant whose message holds the text.
#define EXPECT_BROKEN(statement, text)                                                    \
  try {                                                                                   \
    static_cast<void>(statement);                                                         \
    ADD_FAILURE() << #statement << " broke no invariant";                                 \
  } catch (const ::sluice::BrokenInvariant& broken) {                                     \
    EXPECT_NE(std::string(broken.what()).find(text), std::string::npos) << broken.what(); \
  }                                                                                       \
  static_assert(true)
