// A model in another program, by the header that is installed.
#include "embed/sluice.h"

#include <gtest/gtest.h>

#include "support/harness.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

const std::string& small_model() {
  static const std::string path = write_tiny_model({}, temp_path("embed.gguf"));
  return path;
}

ModelOptions with(const std::string& method) {
  return {.model = small_model(), .method = method, .stages = 2, .threads = 1};
}

bool go_on(const std::string&) { return true; }

void expect_refused(const ModelOptions& options, const std::string& word) {
  const auto model = Model::open(options);
  ASSERT_FALSE(model) << word;
  EXPECT_EQ(model.error().kind, ErrorKind::kInput);
  EXPECT_NE(model.error().message.find(word), std::string::npos) << model.error().message;
}

TEST(Embed, AnswersWithTheTokensOfPlainDecodingWhateverTheMethod) {
  const Opened opened = open(small_model());
  RequestSpec spec;
  spec.prompt = *opened.tokenizer.encode("hello hello", true, false);
  spec.max_tokens = 40;
  spec.sampling = {.temperature = 0.7f, .seed = 3};
  const std::vector<Token> plain = plain_decoding(opened, spec, KvType::kF16, 512);
  for (const char* method : {"auto", "ar", "specpipe", "surge"}) {
    auto model = Model::open(with(method));
    ASSERT_TRUE(model) << model.error().message;
    std::string text;
    const auto say = [&](const std::string& piece) {
      text += piece;
      return true;
    };
    const auto reply =
        model->answer({{"user", "hello hello"}}, {.max_tokens = 40, .temperature = 0.7f, .seed = 3}, say);
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->tokens, std::vector<int32_t>(plain.begin(), plain.end())) << method;
    EXPECT_EQ(reply->text, text);
    EXPECT_EQ(reply->prompt_tokens, static_cast<int64_t>(spec.prompt.size()));
    EXPECT_NE(reply->finish, "running");
    EXPECT_GT(reply->tokens_per_second, 0);
    EXPECT_EQ(reply->method == "ar", method == std::string("ar"));
  }
}

TEST(Embed, AConversationGoesOnAndSaysWhatItWouldFromTheBeginning) {
  auto one = Model::open(with("specpipe")), other = Model::open(with("specpipe"));
  ASSERT_TRUE(one && other);
  const AnswerOptions options{.max_tokens = 12};
  const std::vector<Message> longer = {{"user", "hello hello hello"}};
  ASSERT_TRUE(one->answer({{"user", "hello hello"}}, options, go_on));
  EXPECT_FALSE(one->answer({}, options, go_on)) << "no message";
  EXPECT_FALSE(one->answer(longer, {.max_tokens = 0}, go_on)) << "and what came before is still there";
  const auto further = one->answer(longer, options, go_on), anew = other->answer(longer, options, go_on);
  ASSERT_TRUE(further && anew);
  EXPECT_EQ(further->tokens, anew->tokens);
}

TEST(Embed, AnAnswerEndsWhereItsListenerSaysSo) {
  auto model = Model::open(with("ar"));
  ASSERT_TRUE(model);
  int pieces = 0;
  const auto enough = [&](const std::string&) { return ++pieces < 2; };
  const auto reply = model->answer({{"user", "hello"}}, {.max_tokens = 200}, enough);
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(pieces, 2) << "nobody is told more than he wanted";
  EXPECT_EQ(reply->finish, "cancelled");
  EXPECT_TRUE(model->answer({{"user", "hello"}}, {.max_tokens = 4}, go_on)) << "and the next one comes";
}

TEST(Embed, ErrorsNameWhatIsWrong) {
  expect_refused({}, "--model");
  expect_refused({.model = "missing.gguf"}, "missing.gguf");
  expect_refused(with("faster"), "--method");
  expect_refused({.model = small_model(), .stages = 0}, "--stages 0");
  expect_refused({.model = small_model(), .stages = 2, .hosts = "127.0.0.1:7001"}, "--stages 2");
  expect_refused({.model = small_model(), .hosts = "attic:seven"}, "--hosts");
  expect_refused({.model = small_model(), .context = -1}, "--context");
  expect_refused({.model = small_model(), .threads = 300}, "--threads");
}

}  // namespace
}  // namespace sluice::test
