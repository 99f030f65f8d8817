// Writes the seeds of the fuzzing to the directories that are named: a small model of each family and vocabulary, a
// head of each kind, messages of each kind, and what comes over a connection to a stage and to the server.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "seeds.h"
#include "support/random_message.h"
#include "support/tiny_head.h"
#include "transport/chunks.h"
#include "wire/codec.h"

namespace {

void write_models(const std::filesystem::path& directory) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "glm4moe", "deepseek2", "gpt-oss",
                                   "gemma2", "gemma3", "gemma4", "qwen3next", "qwen35", "qwen35moe"})
    for (const char* tokenizer : {"gpt2", "llama", "gemma4"})
      write_tiny_model(sluice::test::fuzzed_model(architecture, tokenizer),
                       directory / (std::string(architecture) + "-" + tokenizer + ".gguf"));
}

void write_heads(const std::filesystem::path& directory) {
  const std::string path = sluice::test::temp_path("target.gguf");
  const auto target = sluice::ModelFile::open(write_tiny_model(sluice::test::fuzzed_target(), path)).value();
  for (const char* kind : {"spd", "eagle3", "p-eagle", "exit", "draft"})
    for (const bool some : {false, true}) {
      sluice::test::TinyHeadSpec spec{.kind = kind};
      if (some) spec.vocabulary = {3, 9, 80};
      tiny_head(target, spec).write(directory / (std::string(kind) + (some ? "-some" : "") + ".gguf"));
    }
}

void write_bytes(const std::filesystem::path& path, const sluice::Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void write_messages(const std::filesystem::path& directory) {
  sluice::test::RandomMessages random(1);
  for (size_t kind = 0; kind < std::variant_size_v<sluice::Message>; ++kind)
    for (int i = 0; i < 20; ++i) {
      write_bytes(directory / (std::to_string(kind) + "-" + std::to_string(i)), sluice::encode(random.of_kind(kind)));
    }
}

// Batches of a sequence as an honest peer sends them: a prompt, then nodes below a commit; and what a head reads of it.
std::vector<sluice::Message> honest_batches() {
  using namespace sluice;
  constexpr SequenceId kSequence(0);
  constexpr size_t kState = 4;
  Batch prompt{.id = BatchId(0), .updates = {Open{kSequence, {}}}};
  for (int32_t i = 0; i < 3; ++i)
    prompt.rows.push_back({.sequence = kSequence,
                           .token = 7 + i,
                           .position = i,
                           .cell = Cell(i),
                           .parent = i > 0 ? Cell(i - 1) : Cell(),
                           .kind = Row::Kind::kPrompt,
                           .index = static_cast<uint16_t>(i)});
  Batch first = prompt, second{.id = BatchId(2), .updates = {Commit{kSequence, Cell(3)}}};
  first.id = BatchId(1);
  first.updates.clear();
  first.rows = {{.sequence = kSequence, .token = 9, .position = 3, .cell = Cell(3), .parent = Cell(2)}};
  second.rows = {{.sequence = kSequence, .token = 9, .position = 4, .cell = Cell(5), .parent = Cell(3)}};
  std::vector<Message> messages;
  for (Batch* batch : {&prompt, &first, &second}) {
    batch->hidden.assign(batch->rows.size() * kState, 0.5f);
    messages.emplace_back(*batch);
  }
  messages.emplace_back(Amendment{.dead = {{BatchId(2), 0}}, .late_draws = {}});
  messages.emplace_back(Taps{.batch = prompt.id,
                             .stage = StageId(1),
                             .rows = prompt.rows,
                             .layers = {1, 2, 3},
                             .states = std::vector<float>(prompt.rows.size() * 3 * kState, 0.5f)});
  return messages;
}

// The first byte says how large the pieces are in which the others come.
void write_connections(const std::filesystem::path& directory) {
  using namespace sluice;
  test::RandomMessages random(2);
  for (uint8_t i = 0; i < 40; ++i) {
    ChunkWriter out;
    Bytes all = {std::byte{i}}, piece;
    const auto put = [&](const Message& message, Priority priority) {
      out.add(encode(message), priority);
      out.beat(i);
      while (out.fill(piece)) all.insert(all.end(), piece.begin(), piece.end());
    };
    put(Hello{.epoch = i, .stage = StageId(0), .role = Hello::Role::kBatches}, Priority::kUrgent);
    for (const Message& message : honest_batches()) put(message, Priority::kBulk);
    put(random.of_kind(i % std::variant_size_v<Message>), Priority::kUrgent);
    write_bytes(directory / std::to_string(i), all);
  }
}

// Requests to the server, some of them after each other. The first byte says how large the pieces are in which the
// others come.
void write_requests(const std::filesystem::path& directory) {
  const auto post = [](const std::string& path, const std::string& body, const std::string& more = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  const std::string chat = R"({"model": "m", "messages": [{"role": "system", "content": "a"}, {"role": "user",
      "content": [{"type": "text", "text": "b"}]}, {"role": "assistant", "content": null, "reasoning_content": "c",
      "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool",
      "tool_call_id": "1", "content": "d"}], "tools": [{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object"}}}], "tool_choice": "auto", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 4,
      "min_p": 0.1, "repeat_penalty": 1.1, "presence_penalty": 1, "frequency_penalty": -1, "seed": -7, "n": 2,
      "stop": ["x", "yy"], "logit_bias": {"7": 1.5}, "logprobs": true, "top_logprobs": 3, "stream": true,
      "stream_options": {"include_usage": true}, "user": "u", "response_format": {"type": "text"}})";
  const std::string text = R"({"prompt": [1, 2, 3], "logprobs": 2, "ignore_eos": true, "max_completion_tokens": 9})";
  const std::string responses = R"({"instructions": "a", "input": [{"role": "user", "content": [{"type": "input_text",
      "text": "b"}]}, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]}, {"type":
      "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1",
      "output": "d"}], "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}], "reasoning":
      {"effort": "none"}, "text": {"format": {"type": "text"}}, "max_output_tokens": 9, "store": false})";
  const std::string messages = R"({"system": [{"type": "text", "text": "a"}], "messages": [{"role": "user", "content":
      "b"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "c", "signature": ""}, {"type":
      "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]}, {"role": "user", "content": [{"type": "tool_result",
      "tool_use_id": "1", "content": "d", "is_error": false}, {"type": "text", "text": "e"}]}], "tools": [{"name": "f",
      "input_schema": {"type": "object"}}], "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"},
      "max_tokens": 9, "stop_sequences": ["x"], "stream": true})";
  const std::string chunked = "POST /v1/completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
  const std::vector<std::string> all = {
      post("/v1/chat", chat),
      post("/v1/completion", text) + post("/v1/chat", chat),
      post("/v1/chat", "{}", "Expect: 100-continue\r\n") + "GET /health HTTP/1.0\r\n\r\n",
      chunked + "GET /refused?x HTTP/1.1\r\nConnection: close\r\n\r\n",
      "hello",
      post("/v1/responses", responses) + post("/v1/messages", messages)};
  for (size_t i = 0; i < all.size(); ++i)
    for (const char pieces : {'\0', '\7'})
      std::ofstream(directory / (std::to_string(i) + (pieces == 0 ? "-whole" : "-pieces")), std::ios::binary)
          << pieces << all[i];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: make_corpus MODELS HEADS MESSAGES CONNECTIONS REQUESTS\n");
    return 2;
  }
  try {
    for (const int i : {1, 2, 3, 4, 5}) std::filesystem::create_directories(argv[i]);
    write_models(argv[1]);
    write_heads(argv[2]);
    write_messages(argv[3]);
    write_connections(argv[4]);
    write_requests(argv[5]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_corpus: %s\n", e.what());
    return 1;
  }
}
