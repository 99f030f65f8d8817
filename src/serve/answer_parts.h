// What an answer holds, in the order in which it comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "chat/answer_stream.h"

namespace sluice {

// A run of reasoning or of content, or a call.
struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kContent, kCall };
  Kind kind = Kind::kContent;
  std::string text = {};           // of a call its arguments
  std::string id = {}, name = {};  // of a call
};

// Parts as they grow, each whole before the next one begins. Thread safety: none.
class AnswerParts {
 public:
  struct Step {
    enum class Kind : uint8_t { kBegin, kMore, kEnd };
    Kind kind;
    size_t part;            // its index
    std::string more = {};  // what has come to its text
  };
  // What that does, in order.
  std::vector<Step> take(const AssistantDelta& more);
  // Nothing more comes.
  std::vector<Step> finish();

  const std::vector<AnswerPart>& all() const { return parts_; }  // as far as they have come

 private:
  void begin(AnswerPart part, std::vector<Step>& steps);
  void grow(size_t part, const std::string& more, std::vector<Step>& steps);
  void add_text(AnswerPart::Kind kind, const std::string& more, std::vector<Step>& steps);

  std::vector<AnswerPart> parts_;
  std::vector<size_t> calls_;  // which of the parts they are
  bool open_ = false;          // the last one may grow
};

// All of a message as it would come at once.
AssistantDelta delta_of(const AssistantMessage& message);

}  // namespace sluice
