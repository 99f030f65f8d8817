#include <algorithm>
#include <memory>
#include <numeric>

#include "bench.h"
#include "difference.h"

namespace gpu {
namespace {

constexpr int kLayers = 4, kCells = 512, kTokens = 12, kOthersFrom = 256;

// How a path of kTokens tokens goes through the stage.
struct Story {
  std::vector<int> chunks = std::vector<int>(kTokens, 1);  // tokens a pass
  std::vector<int> widths = {0};                           // rows of the passes, in turn; 0: that of the test
  std::vector<int32_t> cells;                              // of the path's tokens
  uint64_t foreign = 1;                                    // what is in the cache before
  uint64_t others = 1;                                     // the other rows
  bool move = false;                                       // the path's rows lie anywhere among the others
};

class StageTest {
 public:
  StageTest(const Stage& stage, Attention attention) : stage_(stage), attention_(attention) {
    tokens_.resize(static_cast<size_t>(kTokens) * d());
    Noise(21).fill(tokens_);
  }

  // The outputs of the path's tokens.
  std::vector<float> run(const Story& story, int width) {
    const_cast<Stage&>(stage_).fill_cache(story.foreign);
    std::vector<float> out(tokens_.size());
    Noise noise(story.others + 500);
    int done = 0;
    for (size_t i = 0; i < story.chunks.size(); ++i) {
      const int rows = story.widths[i % story.widths.size()] > 0 ? story.widths[i % story.widths.size()] : width;
      std::vector<int32_t> places = noise.permutation(rows);
      if (!story.move) std::iota(places.begin(), places.end(), 0);
      Pass& pass = pass_of(rows);
      pass.set(input(story, done, story.chunks[i], places, noise));
      pass.graph().run();
      for (int j = 0; j < story.chunks[i]; ++j, ++done) {
        const std::vector<float> row = pass.output(places[static_cast<size_t>(j)]);
        std::copy(row.begin(), row.end(), out.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(done) * d()));
      }
    }
    return out;
  }

  // The same pass again and again.
  Comparison again(int width, int times) {
    Pass& pass = pass_of(width);
    Noise noise(9);
    Story story;
    story.cells.resize(kTokens);
    std::iota(story.cells.begin(), story.cells.end(), 0);
    std::vector<int32_t> places(static_cast<size_t>(width));
    std::iota(places.begin(), places.end(), 0);
    pass.set(input(story, 0, 1, places, noise));
    Comparison comparison;
    std::vector<float> first;
    for (int i = 0; i < times; ++i) {
      pass.graph().run();
      if (i == 0) {
        first = pass.output();
      } else {
        comparison.add(first, pass.output());
      }
    }
    return comparison;
  }

 private:
  size_t d() const { return static_cast<size_t>(stage_.shape().d); }

  Pass& pass_of(int rows) {
    for (auto& [of, pass] : passes_) {
      if (of == rows) return *pass;
    }
    passes_.emplace_back(rows, std::make_unique<Pass>(stage_, rows, attention_, false));
    return *passes_.back().second;
  }

  // `n` tokens of the path from `first` on, at the first n of `places`; other rows, of other sequences, at the rest.
  PassInput input(const Story& story, int first, int n, const std::vector<int32_t>& places, Noise& noise) const {
    const int rows = static_cast<int>(places.size());
    const bool gathered = attention_ == Attention::kGathered;
    PassInput made(rows, stage_.shape().d, stage_.cells());
    noise.fill(made.hidden);
    const std::vector<int32_t> other_cells = noise.permutation(kCells - kOthersFrom);
    for (int i = 0; i < rows; ++i) {
      const int row = places[static_cast<size_t>(i)];
      const auto at = static_cast<size_t>(row);
      if (i >= n) {
        const int cell = kOthersFrom + other_cells[static_cast<size_t>(i % (kCells - kOthersFrom))];
        made.positions[at] = noise.below(1000);
        made.written[at] = cell;
        made.see(row, cell);
        for (int more = noise.below(200); more > 0; --more)
          made.see(row, kOthersFrom + noise.below(kCells - kOthersFrom));
        continue;
      }
      const int token = first + i;
      std::copy_n(tokens_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(token) * d()), d(),
                  made.hidden.begin() + static_cast<ptrdiff_t>(at * d()));
      made.positions[at] = token;
      made.written[at] = story.cells[static_cast<size_t>(token)];
      for (int j = 0; j <= token; ++j) made.see(row, gathered ? j : story.cells[static_cast<size_t>(j)]);
    }
    if (gathered) std::copy(story.cells.begin(), story.cells.end(), made.path.begin());
    return made;
  }

  const Stage& stage_;
  Attention attention_;
  std::vector<float> tokens_;
  std::vector<std::pair<int, std::unique_ptr<Pass>>> passes_;
};

constexpr const char* kVaried[] = {"nothing",
                                   "other rows",
                                   "other rows and places",
                                   "foreign cells' contents",
                                   "foreign cells in front",
                                   "foreign cells in between",
                                   "another order of cells",
                                   "tokens together in passes",
                                   "rows, places, contents and tokens together",
                                   "width of passes"};

// Tokens shared out among passes of at most so many.
std::vector<int> random_chunks(int most, Noise& noise) {
  std::vector<int> chunks;
  for (int left = kTokens; left > 0; left -= chunks.back()) chunks.push_back(1 + noise.below(std::min(left, most)));
  return chunks;
}

Story varied(const std::string& what, int trial, int width) {
  Noise noise(static_cast<uint64_t>(trial) + 900);
  const uint64_t seed = static_cast<uint64_t>(trial) + 2;
  const bool everything = what == "rows, places, contents and tokens together";
  Story story;
  story.cells.resize(kTokens);
  std::iota(story.cells.begin(), story.cells.end(), 0);
  if (everything || what.starts_with("other rows")) story.others = seed;
  if (everything || what == "other rows and places") story.move = true;
  if (everything || what == "foreign cells' contents") story.foreign = seed + 50;
  if (everything || what == "tokens together in passes") story.chunks = random_chunks(std::min(width, kTokens), noise);
  if (what == "foreign cells in front") {
    for (int32_t& cell : story.cells) cell += kOthersFrom - kTokens;  // just before those of the others
  }
  if (what == "foreign cells in between") story.cells = noise.rising(kTokens, kOthersFrom);
  if (what == "another order of cells") story.cells = noise.permutation(kTokens);
  if (what == "width of passes") {
    story.widths.clear();
    for (int i = 0; i < kTokens; ++i) story.widths.push_back(1 + noise.below(64));
  }
  return story;
}

}  // namespace

void stage_bits(const Device& device, const Options& options, Results& results) {
  for (const std::string& shape_name : options.shapes) {
    for (const std::string& type : options.types) {
      const Stage stage(device, shape_named(shape_name), type_named(type), kLayers, kCells);
      for (const std::string& attention : options.attentions) {
        StageTest test(stage, attention_named(attention));
        const auto record = [&](const char* what, int width) {
          return Record(what)
              .set("shape", shape_name)
              .set("type", type)
              .set("attention", attention)
              .set("width", width);
        };
        for (int width : {1, 4, 8, 16, 32, 64}) {
          const std::vector<float> reference = test.run(varied("nothing", 0, width), width);
          for (const std::string what : kVaried) {
            if (width == 1 && (what.find("rows") != std::string::npos || what.starts_with("tokens"))) continue;
            Comparison comparison;
            for (int i = 0; i < options.trials; ++i) comparison.add(reference, test.run(varied(what, i, width), width));
            Record made = record("stage_at_width", width);
            results.write(comparison.into(made.set("varied", what)));
          }
        }
        for (int width : {1, 8, 32, 64, 256}) {
          Record made = record("stage_again", width);
          results.write(test.again(width, 200).into(made));
        }
      }
    }
  }
}

}  // namespace gpu
