// What a session is opened with: plain values, whoever they come from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "compute/stage_runner.h"
#include "engine/request.h"
#include "model/hub.h"
#include "session/draft_place.h"
#include "session/policy.h"
#include "transport/address.h"

namespace sluice {

class MpiJob;

enum class ExecutorKind : uint8_t { kThreads, kHosts, kMpi, kVirtual };
inline constexpr Choice<ExecutorKind> kExecutors[] = {{"threads", ExecutorKind::kThreads},
                                                      {"hosts", ExecutorKind::kHosts},
                                                      {"mpi", ExecutorKind::kMpi},
                                                      {"virtual", ExecutorKind::kVirtual}};

enum class Compute : uint8_t { kFull, kLazy, kStored };
inline constexpr Choice<Compute> kComputes[] = {
    {"full", Compute::kFull}, {"lazy", Compute::kLazy}, {"stored", Compute::kStored}};

inline constexpr Choice<KvType> kKvTypes[] = {{"f16", KvType::kF16}, {"f32", KvType::kF32}, {"q8_0", KvType::kQ8_0}};
inline constexpr Choice<Activations> kActivations[] = {{"f32", Activations::kF32}, {"f16", Activations::kF16}};

// A rule of verification has two names: which lossless one it is, and which lossy one.
inline constexpr Choice<Rule> kLosslessRules[] = {{"match", Rule::kMatch}, {"reject", Rule::kReject}};
inline constexpr Choice<Rule> kLossyRules[] = {
    {"none", Rule::kMatch}, {"relaxed", Rule::kRelaxed}, {"top-p", Rule::kTopP}};

inline constexpr const char* kAutoMethod = "auto";  // the best that the files at hand allow, if it pays

inline constexpr const char* kAutoDraft =
    "auto";  // the one that comes with the program, or a smaller model of the target's vocabulary

// A host that holds a stage of the target (sluice stage), and what it is given.
struct HostOptions {
  HostAddress address;
  int32_t layers = 0;   // 0: as shared out; of all hosts or of none
  int32_t threads = 0;  // 0: as SessionOptions::threads says
  std::string device;   // empty: as SessionOptions::devices say
  double memory = 0;    // GiB that the stage may take; 0: what its host gives
};

struct SessionOptions {
  std::string model;                // a GGUF file or a name (model/hub.h); empty: the default model
  std::vector<std::string> drafts;  // files or names, the smallest model first; kAutoDraft: one of the cache
  std::vector<std::string> heads;   // files, one of a kind
  std::string ngram_corpus;         // a text that n-grams know; empty: none
  int32_t draft_vocab = 0;          // draft models guess among their first tokens only, so many; 0: all

  int32_t stages = 1;
  std::vector<int32_t> cuts;  // first layers of the second, third, … stage; empty: as balanced as can be
  ExecutorKind executor = ExecutorKind::kThreads;
  std::vector<HostOptions> hosts;  // of the target's stages, one each; empty: they are in this process
  // Of the first draft models, one each, and one more of the head; the others are in this process.
  std::vector<HostOptions> draft_hosts;
  // Of draft models and the head, whatever else says where they run. None: as draft_hosts, the profile or the plan has
  // it.
  std::optional<DraftPlace> draft_on;
  std::shared_ptr<MpiJob> job;          // whose ranks are the hosts; null: they are reached over TCP
  std::string secret;                   // a file; without one the hosts are this machine
  std::vector<HostAddress> spares;      // who takes the stages of a host that is lost, in this order
  double patience = policy::kPatience;  // seconds that a silent host is given
  std::string profile;                  // empty: `uniform` when simulated, else not paced
  Compute compute = Compute::kFull;
  std::string memo;     // a file that keeps what lazy runs computed, for stored ones too; empty: none
  int32_t context = 0;  // 0: the model's, at most policy::kDefaultContext
  double memory = 0;    // GiB of the target's stages in this process; 0: what they need
  KvType kv = KvType::kF16;
  Activations activations = Activations::kF32;  // between stages
  // Seconds from token to token that prompts of others may make of an answer by plain decoding; 0: as it comes.
  double longest_gap = 0;
  // Of the target's stages: one for all, or one each; none: kCpuDevice. In lower case, as compute/ggml_device.h has
  // them.
  std::vector<std::string> devices;
  std::string draft_device = kCpuDevice;  // of draft models; heads compute on the CPU
  int32_t width_lock = kWidthLock;        // on devices of ggml's, StageOptions::width_lock
  int32_t threads = 0;                    // a stage; 0: the machine's cores shared by the stages
  std::string chat_template_file;         // in place of the template in the model; empty: that one
  bool raw = false;                       // prompts are plain text, no messages
  bool reads_answers = false;             // for calls of tools, reasoning and forms: Session::answers(), grammars()
  bool trace = false;                     // engines record all that happens
  OnDownload on_download = [](const std::string&, uint64_t, uint64_t) { return true; };  // of named models

  // A line for the user when a host is lost, and when others have its stages. Of any thread.
  std::function<void(const std::string&)> on_host = [](const std::string&) {};
  std::function<bool(uint64_t, uint64_t)> on_weights_sent;  // to hosts: blocks so far, and in all; false: stop

  // What a request asks for unless it says otherwise; its method may be kAutoMethod, its prompt is of no meaning.
  RequestSpec request = {.method = kAutoMethod};

  bool stages_asked_for() const { return stages != 1 || !cuts.empty() || !hosts.empty(); }
  size_t n_stages() const { return cuts.empty() ? static_cast<size_t>(stages) : cuts.size() + 1; }
  bool hosts_say_layers() const { return !hosts.empty() && hosts.front().layers > 0; }
  bool simulated() const { return executor == ExecutorKind::kVirtual; }
  bool lazy() const { return compute != Compute::kFull; }  // or stored: what is needed of it is computed so
  const std::string& device(size_t stage) const;
  // Whether the text is the model's own, as plain decoding in one process says it.
  bool exact() const { return activations == Activations::kF32; }
  bool same_tokens() const { return request.sampling.rule == Rule::kMatch; }  // whatever the method
};

// Combinations that make no sense. Errors name the options of the command line.
Status check(const SessionOptions& options);

}  // namespace sluice
