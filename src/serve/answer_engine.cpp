#include "serve/answer_engine.h"

#include <utility>

namespace sluice {

AnswerNews failed_news(ApiError error) {
  AnswerNews news;
  news.end = AnswerEnd{.finish = Finish::kFailed, .usage = {}, .error = std::move(error)};
  return news;
}

ApiError unavailable(const std::string& why) {
  return {.status = 503, .message = why, .param = "", .code = "engine_unavailable"};
}

}  // namespace sluice
