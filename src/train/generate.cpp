#include "train/generate.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <unordered_set>

#include "model/utf8.h"

namespace sluice {

namespace {

// Noise that answers don't use, for the prompts that the target writes.
constexpr uint64_t kPromptSeed = 0x5e1f;

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

class Generation {
 public:
  Generation(Engine& engine, const Tokenizer& tokenizer, JobList& jobs, CorpusWriter& corpus,
             const Exclusion& exclusion, const GenerateOptions& options, const GenerateHooks& hooks)
      : engine_(engine),
        tokenizer_(tokenizer),
        jobs_(jobs),
        corpus_(corpus),
        exclusion_(exclusion),
        options_(options),
        hooks_(hooks) {}

  Result<GenerateFigures> run() {
    const auto begin = std::chrono::steady_clock::now();
    while (!hooks_.interrupted()) {
      SLUICE_TRY_STATUS(fill());
      if (!engine_.busy()) break;
      SLUICE_TRY(const auto news, engine_.step());
      for (const Progress& progress : news) {
        if (!running_.at(progress.request).writes_prompt) spoken_ += static_cast<int64_t>(progress.tokens.size());
        if (progress.finish != Finish::kNone) SLUICE_TRY_STATUS(finish(progress.request));
      }
      figures_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      hooks_.progress(corpus_.answer_tokens(), static_cast<double>(spoken_) / figures_.seconds);
    }
    return figures_;
  }

 private:
  struct Running {
    Job job;
    bool writes_prompt = false;
    Split split = Split::kTrain;
  };

  // Keeps so many requests running, until enough tokens are there; then those that run come to their end, since
  // stopping them would favour short answers.
  Status fill() {
    while (running_.size() < static_cast<size_t>(options_.concurrency) && corpus_.answer_tokens() < options_.tokens) {
      const auto job = jobs_.next();
      if (!job) return {};
      if (corpus_.holds(job->id)) continue;
      if (job->prompt != nullptr) {
        SLUICE_TRY_STATUS(ask(*job, *job->prompt));
      } else {
        RequestSpec spec = spec_for(*job, hooks_.openings[job->opening].tokens);
        spec.sampling.temperature = 1.0f;
        spec.sampling.seed ^= kPromptSeed;
        spec.max_tokens = options_.max_prompt;
        SLUICE_TRY_STATUS(submit(std::move(spec), {*job, /*writes_prompt=*/true}));
      }
    }
    return {};
  }

  RequestSpec spec_for(const Job& job, std::vector<Token> prompt) const {
    RequestSpec spec{.prompt = std::move(prompt),
                     .max_tokens = options_.max_answer,
                     .method = options_.method,
                     .sources = options_.sources};
    spec.sampling.temperature = job.temperature;
    spec.sampling.top_k = options_.top_k;
    spec.sampling.seed = options_.seed;
    spec.sampling.choice = static_cast<uint32_t>(job.id);
    return spec;
  }

  Status submit(RequestSpec spec, Running running) {
    SLUICE_TRY(const RequestId id, engine_.submit(std::move(spec)));
    running_.emplace(id, std::move(running));
    return {};
  }

  Status ask(const Job& job, const std::string& prompt) {
    if (exclusion_.find(prompt) != nullptr) return ++figures_.excluded, Status();
    SLUICE_TRY(auto tokens, hooks_.encode(prompt));
    if (tokens.size() > static_cast<size_t>(options_.max_prompt)) return ++figures_.too_long, Status();
    return submit(spec_for(job, std::move(tokens)), {job, /*writes_prompt=*/false, split_of(prompt)});
  }

  Status finish(RequestId id) {
    const Running running = running_.at(id);
    running_.erase(id);
    const Request& request = engine_.request(id);
    if (running.writes_prompt) {
      const std::span answer = std::span(request.tokens).subspan(request.n_prompt());
      const std::string prompt = trimmed(hooks_.openings[running.job.opening].text + tokenizer_.decode(answer));
      const bool is_text = !prompt.empty() && first_invalid_utf8(prompt) == prompt.size();
      const bool whole = request.finish == Finish::kStop && is_text && written_.insert(prompt).second;
      engine_.release(id);
      return whole ? ask(running.job, prompt) : (++figures_.unfinished, Status());
    }
    const Example example{.id = running.job.id,
                          .temperature = running.job.temperature,
                          .n_prompt = static_cast<int32_t>(request.n_prompt()),
                          .tokens = request.tokens};
    engine_.release(id);
    SLUICE_TRY_STATUS(corpus_.append(running.split, example));
    ++figures_.answers;
    figures_.tokens += example.n_answer();
    return {};
  }

  Engine& engine_;
  const Tokenizer& tokenizer_;
  JobList& jobs_;
  CorpusWriter& corpus_;
  const Exclusion& exclusion_;
  const GenerateOptions& options_;
  const GenerateHooks& hooks_;
  std::map<RequestId, Running> running_;
  std::unordered_set<std::string> written_;  // prompts by the target itself
  int64_t spoken_ = 0;                       // tokens of answers, unfinished ones included
  GenerateFigures figures_;
};

}  // namespace

Result<GenerateFigures> generate(Engine& engine, const Tokenizer& tokenizer, JobList& jobs, CorpusWriter& corpus,
                                 const Exclusion& exclusion, const GenerateOptions& options,
                                 const GenerateHooks& hooks) {
  return Generation(engine, tokenizer, jobs, corpus, exclusion, options, hooks).run();
}

Result<Opening> opening_of_user_turn(const std::string& text,
                                     const std::function<Result<std::vector<Token>>(const std::string&)>& encode) {
  SLUICE_TRY(auto a, encode(text + "A"));
  SLUICE_TRY(const auto b, encode(text + "1"));
  a.resize(static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin()));
  if (a.empty())
    return input_error("--self: the model has no chat template that opens a user turn; give --prompts instead");
  return Opening{text, std::move(a)};
}

int64_t count_excluded(const Corpus& corpus, const Tokenizer& tokenizer, const Exclusion& exclusion) {
  int64_t n = 0;
  for (const auto* split : {&corpus.train, &corpus.held_out})
    for (const Example& example : *split)
      if (exclusion.find(tokenizer.decode(example.tokens)) != nullptr) ++n;
  return n;
}

}  // namespace sluice
