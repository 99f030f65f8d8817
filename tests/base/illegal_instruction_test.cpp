#include "base/illegal_instruction.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace sluice {
namespace {

void illegal_instruction() {
#if defined(__x86_64__)
  asm volatile("ud2");
#elif defined(__aarch64__)
  asm volatile("udf #0");
#endif
}

TEST(IllegalInstruction, EndsTheProgramWithWhatToDo) {
  report_illegal_instructions();
  EXPECT_EXIT(illegal_instruction(), testing::ExitedWithCode(1), "^sluice: this processor lacks .* tools/setup");
}

TEST(IllegalInstruction, ASignalThatSomebodySendsIsNone) {
  report_illegal_instructions();
  EXPECT_EXIT(::raise(SIGILL), testing::KilledBySignal(SIGILL), "^$");
}

}  // namespace
}  // namespace sluice
