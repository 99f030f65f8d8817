// A family of models that reasons and calls tools, and what a client gets of its answers.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer_form.h"
#include "serve/http_server.h"
#include "session/session.h"

namespace sluice::test {

// Empty where the set-up has not brought it.
std::string family_template();
// Of a random model with this template; opened once a program.
const Session& family_session();
// How an answer to a request with these tools, in the form of chats, is read.
AnswerFormat family_format(const nlohmann::json& tools);

// Keeps what a client would get.
class Kept : public Exchange {
 public:
  void reply(HttpReply reply) override { replied_.set_value(std::move(reply)); }
  void stream(std::string events) override { events_ += events; }
  void end_stream() override { replied_.set_value({.status = 200, .body = events_}); }
  void on_gone(std::function<void()>) override {}
  bool gone() const override { return false; }
  HttpReply wait() { return replied_.get_future().get(); }

 private:
  std::promise<HttpReply> replied_;
  std::string events_;
};

// What is told of an answer that comes in these pieces: the one object, or the events of a stream.
std::string told(std::unique_ptr<AnswerForm> form, const nlohmann::json& tools, const std::vector<std::string>& pieces,
                 bool stream, const AnswerEnd& end = {.finish = Finish::kStop, .usage = {}, .error = {}});

}  // namespace sluice::test
