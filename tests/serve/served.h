// A server of a tiny model in this process, and what its answers must be.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "serve/server.h"
#include "session/session.h"

namespace sluice::test {

// Where one asks.
inline constexpr const char *kChat = "/v1/chat/completions", *kCompletions = "/v1/completions";

// Two stages in real time, a context of 1024 tokens, methods that n-grams serve. Opened once a program.
const Session& served_session();
// The same at 20 tokens a second: whoever asks for many is still at it when something else has happened.
const Session& slow_session();
// The slow one of a model file of its own, which a test may spoil.
Session slow_session_of(const std::string& model);
const std::string& served_model();  // its file

// As `sluice serve` opens it: answers are read, and may be of a form.
Session open_whole(const std::string& model);
const Session& whole_session();  // of the model above; opened once a program

std::unique_ptr<Server> serve(const ServerOptions& options = {}, const Session& session = served_session());

// What POST /v1/completions or /v1/chat/completions (if there are messages) must answer to this: the text, by plain
// decoding, up to the stop string if there is one.
struct Expected {
  std::string text, finish;
  size_t tokens = 0;  // up to the stop string, or all
};
Expected expected_of(const nlohmann::json& body);

// Of one choice: text or message.
std::string text_of_answer(const nlohmann::json& answer);
// What a choice of a stream's event adds to its text.
std::string text_of_piece(const nlohmann::json& choice);

// Whether it becomes so in reasonable time.
template <class Condition>
bool soon(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

}  // namespace sluice::test
