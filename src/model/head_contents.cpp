#include "model/head_contents.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "model/fingerprint.h"
#include "model/hyperparameters.h"
#include "model/metadata_text.h"

namespace sluice {

namespace {

constexpr const char *kOurs = "sluice-head", *kLlamaCpps = "eagle3";
constexpr int32_t kMaxGroups = 1024;

// Everything that the metadata says, in the order in which one part bounds the next.
class Reader {
 public:
  Reader(HeadContents& head, std::string architecture)
      : head_(head),
        p_(head.parameters),
        header_(head.shards.front()->header),
        keys_(header_, std::move(architecture)),
        ours_(header_, kOurs) {}

  Status run(bool llama_cpps) {
    if (llama_cpps) {
      SLUICE_TRY_STATUS(read_eagle3());
    } else {
      SLUICE_TRY_STATUS(read_ours());
    }
    SLUICE_TRY_STATUS(read_borrows());
    return check_taps();
  }

 private:
  Status read_ours() {
    SLUICE_TRY(const int32_t version, keys_.number_in("version", 0, UINT32_MAX >> 1));
    if (version != 1) return keys_.wrong("version", "is " + std::to_string(version) + "; 1 is needed");
    SLUICE_TRY(const std::string kind, keys_.text("kind"));
    const auto found = value_of(kHeadKinds, kind);
    if (!found || found == HeadKind::kEagle3 || found == HeadKind::kMtp)
      return keys_.wrong("kind", "is '" + displayed(kind) + "'; spd, p-eagle, exit and draft are known");
    p_.kind = *found;
    SLUICE_TRY_STATUS(read_target());
    SLUICE_TRY(p_.hparams.n_layers, keys_.number_in("block_count", p_.kind == HeadKind::kExit ? 0 : 1, kMaxLayers));
    SLUICE_TRY_STATUS(read_layers());
    if (p_.hparams.rope.scaling != RopeParameters::Scaling::kNone)
      return keys_.wrong("rope.scaling.factor", "asks for scaled positions, which heads don't have");
    SLUICE_TRY(const bool halves, keys_.choice("rope.pairing", "adjacent", "halves"));
    p_.hparams.rope.pairing = halves ? RopeParameters::Pairing::kHalves : RopeParameters::Pairing::kAdjacent;
    SLUICE_TRY_STATUS(read_kind());
    SLUICE_TRY(const int32_t n_guessable, keys_.number_in("draft_vocab", 0, static_cast<uint32_t>(target().n_vocab)));
    return read_vocabulary(n_guessable, GGML_TYPE_I32);
  }

  Status read_eagle3() {
    p_.kind = HeadKind::kEagle3;
    if (ours_.has("target.fingerprint")) {
      SLUICE_TRY_STATUS(read_target());
    } else {
      SLUICE_TRY_STATUS(guess_target());
    }
    SLUICE_TRY(const int32_t width, keys_.number_in("target_hidden_size", 1, kMaxDimension));
    if (width != target().d_model)
      return keys_.wrong("target_hidden_size",
                         "is " + std::to_string(width) + ", but its target's is " + std::to_string(target().d_model));
    SLUICE_TRY(p_.hparams.n_layers, keys_.number_in("block_count", 1, 1));
    SLUICE_TRY(p_.hparams.context_length, keys_.count("context_length", INT32_MAX));
    SLUICE_TRY_STATUS(read_layers());
    SLUICE_TRY_STATUS(read_taps("target_layers", 3));
    SLUICE_TRY(p_.feature_norm, keys_.flag("norm_before_fc", false));
    SLUICE_TRY(p_.norm_before_residual, keys_.flag("norm_before_residual", false));
    const Place tokens = head_.places.find(kDraftToTarget);
    const int64_t rows = tokens ? tokens.info->ne[0] : 0;
    if (rows > target().n_vocab)
      return input_error("tensor 'd2t' has " + std::to_string(rows) + " rows; the target has only " +
                         std::to_string(target().n_vocab) + " tokens");
    return read_vocabulary(static_cast<int32_t>(rows), GGML_TYPE_I64);
  }

  Status read_target() {
    SLUICE_TRY(target().name, ours_.text("target.name"));
    SLUICE_TRY(target().fingerprint, ours_.text("target.fingerprint"));
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    if (target().fingerprint.size() != 16 || !std::ranges::all_of(target().fingerprint, is_digit))
      return ours_.wrong("target.fingerprint", "should be 16 hexadecimal digits");
    SLUICE_TRY(target().n_layers, ours_.number_in("target.block_count", 1, kMaxLayers));
    SLUICE_TRY(target().d_model, ours_.number_in("target.embedding_length", 1, kMaxDimension));
    SLUICE_TRY(target().n_vocab, ours_.number_in("target.vocab_size", 1, kMaxDimension));
    return {};
  }

  // From the keys of llama.cpp, which say no more than the sizes.
  Status guess_target() {
    SLUICE_TRY(target().d_model, keys_.number_in("target_hidden_size", 1, kMaxDimension));
    const gguf::Value* tokens = header_.find("tokenizer.ggml.tokens");
    if (tokens == nullptr || !tokens->is_array || tokens->count < 1 || tokens->count > kMaxDimension)
      return input_error("metadata key 'tokenizer.ggml.tokens' should hold the target's tokens");
    target().n_vocab = static_cast<int32_t>(tokens->count);
    return {};
  }

  Status read_layers() {
    HyperParameters& h = p_.hparams;
    h.name = name_of(*head_.shards.front());
    h.architecture = keys_.architecture();
    h.n_vocab = target().n_vocab;
    SLUICE_TRY(h.d_model, keys_.number_in("embedding_length", 1, kMaxDimension));
    if (h.d_model != target().d_model)
      return keys_.wrong("embedding_length", "is " + std::to_string(h.d_model) + "; it should be the target's, " +
                                                 std::to_string(target().d_model));
    return read_layer_shape(keys_, kHeadFamily, h);
  }

  Status read_kind() {
    switch (p_.kind) {
      case HeadKind::kSpd:
        return read_spd();
      case HeadKind::kPEagle: {
        SLUICE_TRY(p_.groups, keys_.number_in("p-eagle.groups", 1, kMaxGroups));
        p_.feature_norm = static_cast<bool>(head_.places.find("feature_norm.weight"));
        return read_taps("p-eagle.taps", 3);
      }
      case HeadKind::kExit: {
        SLUICE_TRY(const int32_t layer, keys_.number_in("exit.layer", 1, static_cast<uint32_t>(target().n_layers)));
        p_.taps = {{layer}};
        return {};
      }
      case HeadKind::kDraft: {
        SLUICE_TRY(const auto layers,
                   keys_.numbers("draft.layers", static_cast<size_t>(p_.hparams.n_layers), 0, target().n_layers - 1));
        return {};
      }
      case HeadKind::kEagle3:
      case HeadKind::kMtp:
        break;
    }
    SLUICE_CHECK(false, "a kind that our files have");
  }

  Status read_taps(const char* key, size_t count) {
    // Who doesn't say how many layers the target has is held to them when there is a target.
    const int32_t deepest = target().n_layers > 0 ? target().n_layers : static_cast<int32_t>(kMaxLayers);
    SLUICE_TRY(auto taps, keys_.numbers(key, count, 0, deepest));
    p_.taps = {std::move(taps)};
    return {};
  }

  Status read_spd() {
    SLUICE_TRY(const int32_t n, keys_.number_in("spd.stages", 1, static_cast<uint32_t>(target().n_layers)));
    const auto n_depths = static_cast<size_t>(n) + 1;
    SLUICE_TRY(p_.cuts, keys_.numbers("spd.cuts", n_depths, 0, target().n_layers));
    if (p_.cuts.front() != 0 || p_.cuts.back() != target().n_layers ||
        std::ranges::adjacent_find(p_.cuts, std::greater_equal<>()) != p_.cuts.end())
      return keys_.wrong("spd.cuts",
                         "should rise from 0 to the target's " + std::to_string(target().n_layers) + " layers");
    SLUICE_TRY(p_.full_attention, keys_.choice("spd.attention", "single", "full"));
    SLUICE_TRY(p_.output_timing, keys_.choice("spd.timing", "input", "output"));
    SLUICE_TRY(p_.feature_norm, keys_.flag("spd.feature_norm"));
    SLUICE_TRY(p_.shared_fc, keys_.flag("spd.shared_fc"));
    SLUICE_TRY(const auto flat, keys_.numbers("spd.taps", std::nullopt, 0, target().n_layers));
    SLUICE_TRY(const auto sizes, keys_.numbers("spd.taps_per_depth", n_depths, 1, INT32_MAX));
    return share_out_taps(flat, sizes);
  }

  // What a token's feature at depth k is made of must have been computed by then.
  Status share_out_taps(const std::vector<int32_t>& flat, const std::vector<int32_t>& sizes) {
    int64_t total = 0;
    for (const int32_t size : sizes) total += size;
    if (total != static_cast<int64_t>(flat.size()))
      return keys_.wrong("spd.taps_per_depth", "adds up to " + std::to_string(total) + "; spd.taps has " +
                                                   std::to_string(flat.size()) + " numbers");
    auto next = flat.begin();
    for (size_t k = 0; k < sizes.size(); ++k) {
      p_.taps.emplace_back(next, next + sizes[k]);
      next += sizes[k];
      if (std::ranges::max(p_.taps.back()) > p_.cuts[k])
        return keys_.wrong("spd.taps", "reads at depth " + std::to_string(k) + " a layer after " +
                                           std::to_string(p_.cuts[k]) + ", where the stage before it ends");
      if (p_.shared_fc && k > 1 && sizes[k] != sizes[1])
        return keys_.wrong("spd.taps_per_depth", "should be the same from depth 1 on, since they share one matrix");
    }
    return {};
  }

  // The target's tokens of the rows of logits, from `d2t`.
  Status read_vocabulary(int32_t rows, ggml_type type) {
    const Place at = head_.places.find(kDraftToTarget);
    const std::string tensor = std::string("tensor '") + kDraftToTarget + "' ";
    if (rows == 0) return at ? Status(input_error(tensor + "is there, but draft_vocab is 0")) : Status();
    if (!at) return input_error(tensor + "is missing, although there is a draft vocabulary");
    const int64_t shape[] = {rows, 1, 1, 1};
    if (at.info->type != type || !std::equal(shape, shape + 4, at.info->ne))
      return input_error(tensor + "should be " + std::to_string(rows) + " numbers of type " + ggml_type_name(type));
    Tensor tokens;
    SLUICE_TRY(const auto mapping, map_tensors({{&tokens, at}}));
    const size_t bytes = ggml_type_size(type);
    p_.vocabulary.resize(static_cast<size_t>(rows));
    for (size_t i = 0; i < p_.vocabulary.size(); ++i) {
      int64_t token = 0;  // little endian: an i32 fills the lower half
      std::memcpy(&token, tokens.data + i * bytes, bytes);
      const int64_t least = i == 0 ? 0 : p_.vocabulary[i - 1] + 1;
      if (token < least || token >= target().n_vocab)
        return input_error(tensor + "should rise and stay below the target's " + std::to_string(target().n_vocab) +
                           " tokens; its row " + std::to_string(i) + " doesn't");
      p_.vocabulary[i] = static_cast<Token>(token);
    }
    return {};
  }

  // What is guessed from must be something that the target has computed. (Nothing ever comes of layer 0 to wait for.)
  Status check_taps() const {
    const auto layers = p_.tapped_layers();
    if (p_.kind == HeadKind::kDraft || layers.back() > 0) return {};
    return input_error("reads the token embedding alone (layer 0) and no state of the target, of whose next token it " +
                       std::string("therefore knows nothing; at least one of its layers should be from 1"));
  }

  Status read_borrows() {
    SLUICE_TRY(const auto borrowed, ours_.texts("borrows"));
    for (const std::string& tensor : borrowed) {
      if (tensor != kTokenEmbedding && tensor != kOutputNorm && tensor != kOutput)
        return ours_.wrong("borrows", "names '" + displayed(tensor) + "', which no head borrows");
      if (head_.places.find(tensor)) return ours_.wrong("borrows", "names '" + tensor + "', which the file has itself");
    }
    return {};
  }

  HeadTarget& target() { return head_.target; }

  HeadContents& head_;
  HeadParameters& p_;
  const gguf::Header& header_;
  MetadataKeys keys_, ours_;
};

std::string architecture_of(const gguf::Header& header) {
  const auto architecture = header.optional_string("general.architecture");
  return architecture && *architecture ? std::string(**architecture) : std::string();
}

std::string sizes(const HeadTarget& target) {
  std::string text = target.n_layers > 0 ? std::to_string(target.n_layers) + " layers" : "layers";
  text += " of " + std::to_string(target.d_model) + ", " + std::to_string(target.n_vocab) + " tokens";
  return target.fingerprint.empty() ? text : text + ", fingerprint " + target.fingerprint;
}

}  // namespace

std::vector<int32_t> HeadParameters::tapped_layers() const {
  std::set<int32_t> layers;
  for (const auto& of_depth : taps) layers.insert(of_depth.begin(), of_depth.end());
  return {layers.begin(), layers.end()};
}

bool is_head_architecture(std::string_view architecture) { return architecture == kOurs || architecture == kLlamaCpps; }

bool HeadFile::is_head(const std::string& path) {
  const auto shards = open_shards(path);
  return shards && is_head_architecture(architecture_of(shards->front().header));
}

Status read_head_parameters(HeadContents& head) {
  const std::string architecture = architecture_of(head.shards.front()->header);
  if (find_family(architecture) != nullptr)
    return input_error("is a whole model of architecture " + architecture + ", not a head; give it as --draft");
  if (!is_head_architecture(architecture))
    return input_error("is no head: its architecture is '" + displayed(architecture) +
                       "'; sluice-head and eagle3 are known");
  return Reader(head, architecture).run(architecture == kLlamaCpps);
}

Result<HeadContents> read_head(const std::string& path) {
  SLUICE_TRY(auto shards, open_shards(path));
  HeadContents head{.shards = shared(std::move(shards)), .places = {}, .parameters = {}, .target = {}};
  head.places = TensorPlaces(head.shards);
  auto status = read_head_parameters(head);
  if (status) status = check_head_tensors(head);
  if (!status) return input_error(head.shards.front()->file.path() + ": " + status.error().message);
  return head;
}

Status claim_target(HeadContents& head, const ModelFile& target) {
  const HyperParameters& h = target.hparams();
  HeadTarget actual{
      .name = h.name, .fingerprint = "", .n_layers = h.n_layers, .d_model = h.d_model, .n_vocab = h.n_vocab};
  if (!head.target.fingerprint.empty()) {
    if (!target.is_part()) {
      SLUICE_TRY(actual.fingerprint, fingerprint(target));
    } else {
      actual.fingerprint = head.target.fingerprint;  // whoever has sent it knows that it is the right one
    }
  }
  const HeadTarget& claimed = head.target;
  const int32_t deepest = head.parameters.taps.empty() ? 0 : std::ranges::max(head.parameters.taps.back());
  if (actual.fingerprint != claimed.fingerprint || actual.d_model != claimed.d_model ||
      actual.n_vocab != claimed.n_vocab || (claimed.n_layers > 0 && actual.n_layers != claimed.n_layers) ||
      deepest > actual.n_layers)
    return input_error(
        head.shards.front()->file.path() + ": is a head of " +
        (claimed.name.empty() ? "another model" : displayed(claimed.name)) + " (" + sizes(claimed) + "), not of " +
        target.path() + ", " + displayed(actual.name) + " (" + sizes(actual) +
        "); a head serves only the model that it was trained for: name that one by -m, or leave the head "
        "out");
  head.parameters.hparams.context_length = h.context_length;
  return {};
}

}  // namespace sluice
