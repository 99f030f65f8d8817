// A model opened for use, as a program does that embeds Sluice.
#include "session/session.h"

#include <gtest/gtest.h>

#include <fstream>

#include "pipeline/stage_memory.h"
#include "session/answer.h"
#include "session/cuts.h"
#include "support/harness.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

const std::string& small_model() {
  static const std::string path = write_tiny_model({}, temp_path("session.gguf"));
  return path;
}

SessionOptions simulated(const std::string& method, int32_t max_tokens) {
  SessionOptions options{.model = small_model(), .stages = 2, .executor = ExecutorKind::kVirtual, .threads = 1};
  options.request.method = method;
  options.request.max_tokens = max_tokens;
  options.request.ignore_end = true;
  return options;
}

TEST(Session, AnswersWithTheTokensOfPlainDecodingWhateverTheMethod) {
  const Opened opened = open(small_model());
  for (const char* method : {kAutoMethod, "ar", "specpipe", "surge"}) {
    const auto session = Session::open(simulated(method, 40));
    ASSERT_TRUE(session) << session.error().message;
    const auto engine = session->make_engine();
    ASSERT_TRUE(engine) << engine.error().message;
    const RequestSpec spec = session->spec(*session->encode({{"user", "hello hello"}}));
    std::string text;
    const auto emit = [&](const std::string& piece) {
      text += piece;
      return true;
    };
    const auto done = answer(*session, **engine, spec, {.emit = emit, .interrupted = [] { return false; }});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(answer(**engine, done->request), plain_decoding(opened, spec, KvType::kF16, 512)) << method;
    EXPECT_EQ(done->text, text);
    EXPECT_EQ(finished_answer(*session, **engine, done->request).text, text);
    EXPECT_EQ(done->trial.has_value(), method == std::string(kAutoMethod)) << "the simulated clock compares nothing";
  }
}

TEST(Session, ATemplateMayStandInPlaceOfTheModelsOwn) {
  SessionOptions options = simulated("ar", 1);
  options.chat_template_file = temp_path("template.jinja");
  std::ofstream(options.chat_template_file)
      << "{% for m in messages %}[{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}";
  const auto session = Session::open(options);
  ASSERT_TRUE(session) << session.error().message;
  EXPECT_EQ(session->render({.messages = {{"user", "hello"}, {"assistant", "well"}}}).value(), "[hello][well]>");
  EXPECT_EQ(session->render({.messages = {{"user", "hello"}}, .add_generation_prompt = false}).value(), "[hello]");
  EXPECT_EQ(session->tokenizer().decode(session->encode({{"user", "hello"}}).value()), "[hello]>");

  std::ofstream(options.chat_template_file, std::ios::trunc) << "{% for m in messages %}";
  const auto broken = Session::open(options);
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find(options.chat_template_file), std::string::npos) << broken.error().message;
  options.chat_template_file += ".none";
  EXPECT_NE(Session::open(options).error().message.find("--chat-template-file"), std::string::npos);
}

TEST(Session, AnAnswerEndsWhereTheCallerSaysSo) {
  const auto session = Session::open(simulated("ar", 40));
  const auto engine = session->make_engine();
  const RequestSpec spec = session->spec(*session->encode({{"user", "hello"}}));
  const auto listening = [](const std::string&) { return true; };
  const auto stopped = answer(*session, **engine, spec, {.emit = listening, .interrupted = [] { return true; }});
  ASSERT_TRUE(stopped) << stopped.error().message;
  EXPECT_TRUE(stopped->interrupted);
  EXPECT_EQ((*engine)->request(stopped->request).finish, Finish::kCancelled);
  const auto deaf = [](const std::string&) { return false; };
  EXPECT_FALSE(answer(*session, **engine, spec, {.emit = deaf, .interrupted = [] { return false; }}));
}

TEST(Session, SaysWhatItChose) {
  const auto session = Session::open(simulated(kAutoMethod, 8));
  ASSERT_TRUE(session) << session.error().message;
  EXPECT_EQ(session->options().stages, 2);
  EXPECT_GT(session->options().context, 0);
  EXPECT_EQ(session->profile_name(), "uniform");
  EXPECT_EQ(session->method(), "surge");
  EXPECT_EQ(session->options().request.method, kAutoMethod);
}

// The last three of nine layers read keys and values of layers 4 and 5, so nothing is cut behind layer 4.
TEST(ChooseCuts, LayersThatReadEachOthersKeysStayTogether) {
  const auto model = ModelFile::open(write_tiny_model(sharing_model({}), temp_path("sharing.gguf")));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(most_stages(model->hparams()), 5);
  for (int32_t stages = 1; stages <= 5; ++stages) {
    const auto cuts = choose_cuts(*model, {.stages = stages}, {});
    ASSERT_TRUE(cuts) << cuts.error().message;
    EXPECT_EQ(std::ssize(*cuts), stages);
    EXPECT_LE(cuts->back().first, 4);
  }
  const auto refused = [&](const SessionOptions& options) { return choose_cuts(*model, options, {}).error().message; };
  EXPECT_EQ(refused({.stages = 6}),
            "--stages 6: layers of this model that read each other's keys and values stay together; give --stages 5 at "
            "most");
  EXPECT_EQ(refused({.cuts = {2, 5}}),
            "--cuts: no stage may begin with layer 5, since layer 6 reads keys and values of layer 4");
  EXPECT_EQ(refused({.hosts = {{.layers = 8}, {.layers = 1}}}),
            "--hosts: no stage may begin with layer 8, since layer 8 reads keys and values of layer 5");
}

// What does not fit into a device's memory stays on the CPU's stage.
TEST(ChooseCuts, ADeviceTakesAsManyLayersAsItsFreeMemoryHolds) {
  const auto model = ModelFile::open(write_tiny_model({.n_layers = 12}, temp_path("room.gguf")));
  ASSERT_TRUE(model) << model.error().message;
  const auto cuts_with = [&](std::vector<std::string> devices, int64_t free) {
    const SessionOptions options{
        .stages = static_cast<int32_t>(devices.size()), .context = 64, .devices = std::move(devices)};
    const int64_t all = free > 0 ? free + bytes_of_passes(model->hparams()) : 0;
    return choose_cuts(*model, options, {}, [all](const std::string&) { return all; });
  };
  const StageOptions one{
      .range = {0, 1}, .with_embedding = false, .with_head = false, .n_cells = 64, .device = "ggml:gpu0"};
  const int64_t layer = bytes_of_stage({.options = one}, *model);
  const std::vector<std::string> both = {"ggml:gpu0", "cpu"};
  const auto on_gpu = [&](int64_t free) { return cuts_with(both, free)->front().count(); };
  EXPECT_EQ(on_gpu(1000 * layer), 11);  // it is faster
  EXPECT_EQ(on_gpu(0), 11);             // it doesn't say
  for (const int64_t layers : {10, 6, 4}) {
    EXPECT_LT(on_gpu(layers * layer), layers);
    EXPECT_GE(on_gpu(layers * layer), layers / 2);  // whose cells are some more than those of `one`
  }
  EXPECT_EQ(cuts_with({"ggml:cpu", "cpu"}, 1000 * layer)->front().count(), 6);
  const auto refused = cuts_with({"ggml:gpu0"}, 4 * layer);
  ASSERT_FALSE(refused);
  for (const char* word : {"--device", "ggml:gpu0", "--device ggml:gpu0,cpu", "--context"})
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
}

TEST(ChooseCuts, StagesOfOneHostShareItsMemory) {
  const auto model = ModelFile::open(write_tiny_model({.n_layers = 12}, temp_path("shared-memory.gguf")));
  ASSERT_TRUE(model) << model.error().message;
  const auto all = static_cast<double>(bytes_of_stage({.options = {.range = {0, 12}, .n_cells = 100}}, *model));
  const auto fit = [&](double part, const std::string& second) {
    HostOptions a{.memory = part * all / (1 << 30)}, b = a;
    a.address = HostAddress::parse("a:7001").value();
    b.address = HostAddress::parse(second).value();
    if (second == "a:7001") b.memory = 0;  // it is said once
    return choose_cuts(*model, {.stages = 2, .hosts = {a, b}, .context = 64}, {}).has_value();
  };
  EXPECT_TRUE(fit(0.8, "b:7001"));
  EXPECT_FALSE(fit(0.8, "a:7001"));
  EXPECT_TRUE(fit(1.6, "a:7001"));
}

TEST(Session, MoreThanTheMachineHoldsIsRefused) {
  SessionOptions options = simulated("ar", 8);
  const auto session = Session::open(options);
  EXPECT_TRUE(session->check_room(1));
  const Status refused = session->check_room(1 << 24);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--concurrency"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace sluice::test
