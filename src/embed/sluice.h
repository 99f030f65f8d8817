// Sluice inside another program: a model that is opened once, and its answers, told as they come. Programs see this
// header and the errors of base/result.h, nothing else (docs/install.md has the CMake lines, examples/ a program).
//
// Errors are values: one line for a person. Where it names an option, as --hosts, the field of that name is meant.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// As the options of `sluice run` (docs/running.md), which has more of them.
struct ModelOptions {
  std::string model = {};                // a GGUF file, or hf:OWNER/MODEL[:QUANT]
  std::vector<std::string> drafts = {};  // draft models with its vocabulary, likewise, the smallest first
  std::vector<std::string> heads = {};   // trained heads of it, GGUF files, one of a kind
  std::string method = "auto";           // how to decode: the text is the same by all (docs/methods.md)
  int32_t stages = 1;                    // in this process
  std::string hosts = {};                // a:7001,b:7001, or a file (docs/hosts.md): each holds a stage
  std::string secret = {};               // a file of sluice secret, where hosts need one
  int32_t context = 0;                   // tokens of prompt and answer; 0: the model's, at most 8192
  int32_t threads = 0;                   // of each stage; 0: the cores, shared by the stages
};

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// One seed gives one text, by every method.
struct AnswerOptions {
  int32_t max_tokens = 256;
  float temperature = 0;  // 0: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  float repeat_penalty = 1;
  uint64_t seed = 0;
};

struct Reply {
  std::string text;
  std::vector<int32_t> tokens;  // one that ends the answer is among them, and no text
  std::string finish;           // "stop": the model ended it; "length": it had to; "cancelled": on_text did
  std::string method;           // that guessed; "ar": none did
  int64_t prompt_tokens = 0;
  int64_t guesses = 0, guessed_right = 0;  // tokens that entered the pipeline as guesses, and those that were right
  double tokens_per_second = 0;            // of those after the first
  // Of plain decoding: in its turns on this very answer, or at most, by what passes were seen to take; 0: not known.
  double plain_tokens_per_second = 0;
};

// Thread safety: one thread at a time may use a model; models don't know of each other.
class Model {
 public:
  // REQUIRES: the program has one thread as yet: processes are forked off that read chat templates. (Later it may have
  // any number.) Pipelines have threads of their own.
  static Result<Model> open(const ModelOptions& options);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const std::string& name() const;
  int32_t context() const;  // tokens

  // Gets the text piece by piece, whole characters of UTF-8, and says whether to go on.
  using OnText = std::function<bool(const std::string& piece)>;

  // The answer to a conversation, whose last message is the user's; without a chat template in the model it goes on
  // from that message. What the messages share with those of the answer before is not computed again.
  Result<Reply> answer(const std::vector<Message>& messages, const AnswerOptions& options, const OnText& on_text);

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice
