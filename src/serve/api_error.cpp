#include "serve/api_error.h"

#include <algorithm>
#include <utility>

#include "model/metadata_text.h"

namespace sluice {

namespace {

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

// As Anthropic's API calls what each status means.
const char* anthropic_type_of(int status) {
  constexpr std::pair<int, const char*> kTypes[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},     {500, "api_error"},        {503, "overloaded_error"}};
  for (const auto& [known, type] : kTypes)
    if (known == status) return type;
  return status < 500 ? "invalid_request_error" : "api_error";
}

}  // namespace

nlohmann::ordered_json ApiError::to_json(ErrorForm form) const {
  if (form == ErrorForm::kAnthropic)
    return {{"type", "error"}, {"error", {{"type", anthropic_type_of(status)}, {"message", message}}}};
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  return {
      {"error", {{"message", message}, {"type", type_of(status)}, {"param", or_null(param)}, {"code", or_null(code)}}}};
}

tl::unexpected<ApiError> bad_parameter(std::string param, const std::string& message) {
  constexpr size_t kLongest = 64;  // an unknown one may have any name
  param.resize(std::min(param.size(), kLongest));
  return tl::unexpected<ApiError>(
      {.status = 400, .message = displayed(param) + ": " + message, .param = param, .code = "invalid_value"});
}

tl::unexpected<ApiError> cannot_read(const std::string& param, const Error& error) {
  if (error.kind == ErrorKind::kInput) return bad_parameter(param, error.message);
  return tl::unexpected<ApiError>({.status = 503,
                                   .message = param + " can't be read now: " + error.message +
                                              "; ask again, and if that does not help, start the server again",
                                   .param = param,
                                   .code = "reader_unavailable"});
}

}  // namespace sluice
