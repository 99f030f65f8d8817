#include "train/train.h"

#include <malloc.h>

#include <climits>
#include <filesystem>
#include <memory>

#include "model/head_file.h"
#include "train/checkpoint.h"
#include "train/draft_vocabulary.h"
#include "train/eagle3.h"
#include "train/head_writer.h"
#include "train/p_eagle.h"
#include "train/shallow.h"
#include "train/spd.h"
#include "train/trainer.h"

namespace sluice {

namespace {

Result<std::vector<Token>> draft_vocabulary(const ModelFile& model, const Corpus& corpus, const TrainOptions& options) {
  const int32_t n_vocab = model.hparams().n_vocab;
  int32_t size = options.draft_vocab;
  std::vector<Token> kept;
  if (!options.from.empty()) {
    SLUICE_TRY(const auto before, HeadFile::open(options.from, model));
    kept = before.parameters().vocabulary;
    if (kept.empty()) return kept;
    size = std::max(size, static_cast<int32_t>(kept.size()));
  }
  if (options.draft_vocab == 0 || size >= n_vocab) return std::vector<Token>();
  return choose_draft_vocabulary(corpus.train, n_vocab, size, kept);
}

// Every step needs tensors like those of the step before. Left to itself, malloc hands large ones back to the kernel,
// which has to clear them for the next step again: a quarter of a step's time.
void keep_memory() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

// From the target's tensors and a draft vocabulary.
struct Maker {
  const ModelFile& model;
  const TargetTensors& target;
  const std::vector<Token>& vocabulary;

  using Head = std::unique_ptr<Trainee>;
  Head operator()(const SpdOptions& head) const { return of_shape<Spd>(head); }
  Head operator()(const PEagleOptions& head) const { return of_shape<PEagle>(head); }
  Head operator()(const ShallowOptions& head) const { return of_shape<Shallow>(head); }
  Head operator()(const Eagle3Options& head) const { return std::make_unique<Eagle3>(model, target, head, vocabulary); }

 private:
  template <class Kind, class Options>
  Head of_shape(const Options& head) const {
    return std::make_unique<Kind>(model.hparams(), target, head, vocabulary);
  }
};

}  // namespace

Result<TrainFigures> train_head(const ModelFile& model, const HeadOptions& head, const TrainOptions& options,
                                const TrainHooks& hooks) {
  keep_memory();
  if (options.threads > 0) torch::set_num_threads(options.threads);
  torch::manual_seed(options.seed);
  SLUICE_TRY(auto corpus, Corpus::open_all(options.corpora));
  const auto checkpoint = (std::filesystem::path(options.out) / "checkpoint.gguf").string();
  if (std::filesystem::exists(checkpoint)) {
    SLUICE_TRY(const size_t began_with, examples_of_checkpoint(checkpoint));
    if (began_with < corpus.train.size()) corpus.train.resize(began_with);
  }
  SLUICE_TRY(const auto target, TargetTensors::open(model));
  SLUICE_TRY(const auto vocabulary, draft_vocabulary(model, corpus, options));
  const auto trainee = std::visit(Maker{model, target, vocabulary}, head);
  const auto path = (std::filesystem::path(options.out) / "head.gguf").string();
  const MatrixTypes types{options.type, options.output_type.value_or(options.type)};
  return train(*trainee, model, corpus, options, hooks, [&] { return write_head(*trainee, model, types, path); });
}

}  // namespace sluice
