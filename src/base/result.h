// Errors as values. Bad input and failed devices are `Result`s; broken invariants are `SLUICE_CHECK`s, which stay on in
// release builds.
#pragma once

#include <stdexcept>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace sluice {

// What kind of failure it was; the program's exit status follows from it.
enum class ErrorKind {
  kRuntime = 1,        // it failed while running (a disk is full, a device is gone)
  kInput = 2,          // the command line or an input file is wrong
  kInterrupted = 130,  // the user stopped it
};

// One line for a person: it names the file, option or rank, and what would be right.
struct Error {
  ErrorKind kind = ErrorKind::kRuntime;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> input_error(std::string message) {
  return tl::unexpected<Error>(Error{ErrorKind::kInput, std::move(message)});
}
inline tl::unexpected<Error> runtime_error(std::string message) {
  return tl::unexpected<Error>(Error{ErrorKind::kRuntime, std::move(message)});
}

// What a failed SLUICE_CHECK throws. Whoever serves several (the engine its requests, an executor its workers) ends
// what broke with it, and not the others; nobody goes on with it.
class BrokenInvariant : public std::logic_error {
 public:
  BrokenInvariant(const std::string& message, std::string why) : std::logic_error(message), why_(std::move(why)) {}
  const std::string& why() const { return why_; }  // as the check has it

 private:
  std::string why_;
};

// Throws BrokenInvariant with the failed condition and its place.
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const char* why);

}  // namespace sluice

#define SLUICE_CHECK(condition, why) \
  ((condition) ? static_cast<void>(0) : ::sluice::check_failed(#condition, __FILE__, __LINE__, why))

// Passes an error on, or names the value: SLUICE_TRY(auto file, ModelFile::open(path));
#define SLUICE_TRY_CAT2(a, b) a##b
#define SLUICE_TRY_CAT(a, b) SLUICE_TRY_CAT2(a, b)
#define SLUICE_TRY(declaration, expression) SLUICE_TRY_IMPL(SLUICE_TRY_CAT(result_, __LINE__), declaration, expression)
#define SLUICE_TRY_IMPL(result, declaration, expression)                          \
  auto result = (expression);                                                     \
  if (!result) return tl::unexpected<::sluice::Error>(std::move(result).error()); \
  declaration = std::move(*result)
#define SLUICE_TRY_STATUS(expression) \
  if (auto status = (expression); !status) return tl::unexpected<::sluice::Error>(std::move(status).error())
