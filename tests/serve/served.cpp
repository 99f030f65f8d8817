#include "serve/served.h"

#include <fstream>
#include <stdexcept>

#include "support/harness.h"
#include "support/tiny_model.h"

namespace sluice::test {

using nlohmann::json;

namespace {

constexpr int32_t kContext = 1024;

Session open_session(const std::string& model, const std::string& profile) {
  SessionOptions options{.model = model, .stages = 2, .profile = profile, .threads = 1};
  options.request.method = "surge";
  auto session = Session::open(options);
  if (!session) throw std::runtime_error(session.error().message);
  return std::move(*session);
}

std::string slow_profile() {
  const std::string path = temp_path("slow.json");
  std::ofstream(path) << R"({"stage": {"points": [[1, 0.025], [256, 0.026]]}})";
  return path;
}

std::vector<Token> prompt_of(const json& body) {
  const Session& session = served_session();
  if (!body.contains("messages"))
    return session.tokenizer().encode(body["prompt"].get<std::string>(), true, true).value();
  std::vector<ChatMessage> messages;
  for (const json& message : body["messages"])
    messages.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  return session.encode(messages).value();
}

}  // namespace

const std::string& served_model() {
  static const std::string path = [] {
    TinyModelSpec spec = narrow_model(4);
    spec.context_length = kContext;
    spec.chat_template =
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    return write_tiny_model(spec, temp_path("served.gguf"));
  }();
  return path;
}

const Session& served_session() {
  static const Session session = open_session(served_model(), "");
  return session;
}

const Session& slow_session() {
  static const Session session = slow_session_of(served_model());
  return session;
}

Session slow_session_of(const std::string& model) { return open_session(model, slow_profile()); }

Session open_whole(const std::string& model) {
  SessionOptions options{.model = model, .stages = 2, .threads = 1};
  options.request.method = "surge";
  options.reads_answers = true;
  auto opened = Session::open(options);
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(*opened);
}

const Session& whole_session() {
  static const Session session = open_whole(served_model());
  return session;
}

std::unique_ptr<Server> serve(const ServerOptions& options, const Session& session) {
  ServerOptions any_port = options;
  any_port.http.port = 0;
  auto server = Server::open(session, any_port);
  if (!server) throw std::runtime_error(server.error().message);
  return std::move(*server);
}

Expected expected_of(const json& body) {
  static const Opened opened = open(served_model());
  RequestSpec spec;
  spec.prompt = prompt_of(body);
  spec.max_tokens = body.value("max_tokens", kContext);
  spec.ignore_end = body.value("ignore_eos", false);
  spec.sampling.temperature = body.value("temperature", 0.0f);
  spec.sampling.top_p = body.value("top_p", 1.0f);
  spec.sampling.top_k = body.value("top_k", 0);
  spec.sampling.repeat_penalty = body.value("repeat_penalty", 1.0f);
  spec.sampling.presence_penalty = body.value("presence_penalty", 0.0f);
  spec.sampling.frequency_penalty = body.value("frequency_penalty", 0.0f);
  spec.sampling.seed = body.value("seed", uint64_t{0});
  const auto tokens = plain_decoding(opened, spec, KvType::kF16, kContext);
  const bool stopped = !spec.ignore_end && opened.tokenizer.ends_generation(tokens.back());
  Expected expected{.text = "", .finish = stopped ? "stop" : "length", .tokens = tokens.size()};
  const std::string stop = body.value("stop", "");
  TextStream stream(opened.tokenizer);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!opened.tokenizer.ends_generation(tokens[i])) expected.text += stream.push(tokens[i]);
    if (i + 1 == tokens.size()) expected.text += stream.finish();
    if (const size_t at = expected.text.find(stop); !stop.empty() && at != std::string::npos)
      return {.text = expected.text.substr(0, at), .finish = "stop", .tokens = i + 1};
  }
  return expected;
}

std::string text_of_answer(const json& answer) {
  const json& choice = answer.at("choices").at(0);
  return choice.contains("text") ? choice["text"] : choice.at("message").at("content");
}

std::string text_of_piece(const json& choice) {
  const json more = choice.contains("text") ? choice["text"] : choice.at("delta").value("content", json());
  return more.is_null() ? "" : more.get<std::string>();
}

}  // namespace sluice::test
