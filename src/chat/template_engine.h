// What the uses of libllama-common's template engine share. Of this folder only.
#pragma once

#include <string>
#include <string_view>

#include "base/helper_process.h"
#include "chat/chat_template.h"

namespace sluice {

inline constexpr HelperProcess::Limits kEngineLimits = {
    .cpu_seconds = 3, .memory_bytes = size_t{512} << 20, .answer_bytes = size_t{16} << 20};

// What an exception of the engine says, in one line. REQUIRES: in the helper process. Throws std::bad_alloc where the
// engine has made a text of that.
std::string one_line(std::string_view what);

// Whether members are of the right kind and nest no deeper than what goes through JSON recursively can bear.
Status check(const ChatTemplateInput& input);

// The messages as a template sees them. REQUIRES: check() passed.
nlohmann::ordered_json messages_of(const ChatTemplateInput& input);

}  // namespace sluice
