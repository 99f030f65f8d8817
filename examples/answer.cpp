// Answers a prompt by Sluice, which is installed: answer MODEL.gguf PROMPT [METHOD]
#include <sluice/sluice.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "answer MODEL.gguf PROMPT [METHOD]\n"), 2;
  auto model = sluice::Model::open({.model = argv[1], .method = argc > 3 ? argv[3] : "auto"});
  if (!model) return std::fprintf(stderr, "%s\n", model.error().message.c_str()), 1;
  const auto print = [](const std::string& piece) {
    std::fputs(piece.c_str(), stdout);
    return std::fflush(stdout) == 0;  // else there is nobody to answer any more
  };
  const auto reply = model->answer({{"user", argv[2]}}, {.max_tokens = 64}, print);
  if (!reply) return std::fprintf(stderr, "%s\n", reply.error().message.c_str()), 1;
  std::fprintf(stderr, "\n%zu tokens, %.1f tok/s by %s", reply->tokens.size(), reply->tokens_per_second,
               reply->method.c_str());
  if (reply->plain_tokens_per_second > 0)
    std::fprintf(stderr, ", %.2f x plain", reply->tokens_per_second / reply->plain_tokens_per_second);
  std::fprintf(stderr, "\n");
}
