// Errors as clients read them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace sluice {

// Whose clients.
enum class ErrorForm : uint8_t { kOpenAi, kAnthropic };

struct ApiError {
  int status = 500;     // of HTTP
  std::string message;  // one line: what is wrong, and what would be right
  std::string param;    // which parameter it is about; empty: none
  std::string code;     // for programs; empty: none

  nlohmann::ordered_json to_json(ErrorForm form = ErrorForm::kOpenAi) const;
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;
using ApiStatus = ApiResult<void>;

// 400: a parameter is not as it should be.
tl::unexpected<ApiError> bad_parameter(std::string param, const std::string& message);
// What reading a parameter came to: likewise if it is wrong (kInput), else 503.
tl::unexpected<ApiError> cannot_read(const std::string& param, const Error& error);

}  // namespace sluice

// As SLUICE_TRY and SLUICE_TRY_STATUS (base/result.h), for errors of the API.
#define SLUICE_API_TRY(declaration, expression) \
  SLUICE_API_TRY_IMPL(SLUICE_TRY_CAT(result_, __LINE__), declaration, expression)
#define SLUICE_API_TRY_IMPL(result, declaration, expression)                         \
  auto result = (expression);                                                        \
  if (!result) return tl::unexpected<::sluice::ApiError>(std::move(result).error()); \
  declaration = std::move(*result)
#define SLUICE_API_TRY_STATUS(expression) \
  if (auto status = (expression); !status) return tl::unexpected<::sluice::ApiError>(std::move(status).error())
