#include "session/options.h"

#include <algorithm>
#include <functional>

#include "method/option_table.h"
#include "session/policy.h"
#include "source/make_source.h"

namespace sluice {

namespace {

Status check_sources(const SessionOptions& options) {
  const std::vector<SourceKind>& asked = options.request.sources;
  const bool given = !options.heads.empty(), further = std::ranges::count(asked, SourceKind::kMtp) > 0;
  SLUICE_TRY_STATUS(
      make_sources(asked, {.n_drafts = options.drafts.size(), .head = given || further, .mtp = further && !given},
                   false)
          .map([](const auto&) {}));
  if (options.ngram_corpus.empty() || asked.empty() || std::ranges::count(asked, SourceKind::kNgram) > 0) return {};
  return input_error("--ngram-corpus is for n-grams, which --source leaves out: add ngram to it, as in ngram," +
                     std::string(name_of(kSources, asked.front())));
}

Status check_hosts(const SessionOptions& options) {
  if (options.executor == ExecutorKind::kMpi && !options.job)
    return input_error("--executor mpi needs ranks: start it by mpirun or srun, as in mpirun -n 4 sluice run …");
  if (options.memory > 0 && !options.hosts.empty())
    return input_error(
        "--memory is of stages in this process; with --hosts each host has its own (sluice stage --memory)");
  if (options.hosts.empty()) {
    if (options.executor == ExecutorKind::kHosts)
      return input_error("--executor hosts needs --hosts, as in --hosts a:7001,b:7001");
    if (!options.spares.empty()) return input_error("--spares are for --hosts: name them, or leave it out");
    return options.secret.empty() ? Status() : input_error("--secret is for --hosts: name them, or leave it out");
  }
  if (options.simulated())
    return input_error("--hosts are real and --executor virtual is simulated: leave one of them out");
  if (options.job && !options.secret.empty())
    return input_error("--secret is for --hosts, and MPI speaks without TLS: leave it out");
  if (options.hosts_say_layers() && !options.cuts.empty())
    return input_error("--cuts and the layers of the hosts in the file of --hosts say the same: leave one of them out");
  const size_t stages = options.hosts.size();
  if (!options.cuts.empty() && options.cuts.size() + 1 != stages)
    return input_error("--cuts makes " + std::to_string(options.cuts.size() + 1) + " stages, and " +
                       (options.job ? "there are " + std::to_string(stages) + " ranks: give one cut fewer than ranks"
                                    : "--hosts names " + std::to_string(stages) + ": give one cut fewer than hosts"));
  return {};
}

Status check_devices(const SessionOptions& options) {
  const auto& devices = options.devices;
  const bool others = std::ranges::any_of(devices, [](const std::string& device) { return device != kCpuDevice; });
  const bool mixed = std::ranges::adjacent_find(devices, std::not_equal_to<>()) != devices.end();
  if (options.width_lock != kWidthLock && !others && options.draft_device == kCpuDevice && options.hosts.empty())
    return input_error("--width-lock is for devices of ggml's, and there is none: add --device, or leave it out");
  if (options.kv == KvType::kQ8_0 && (others || options.draft_device != kCpuDevice))
    return input_error("--kv q8_0 is for processors: leave it out, or --device and --draft-device");
  if (mixed && options.lazy())
    return input_error(
        "--compute lazy and stored compute all layers on one device, and --device names several: give one");
  if (others && !options.spares.empty())
    return input_error(
        "--spares are for stages on processors: on another device the text could become another one; "
        "leave them out, or --device");
  return {};
}

Status check_draft_place(const SessionOptions& options) {
  if (!options.draft_on) return {};
  const std::string asked = "--draft-on " + options.draft_on->text();
  const bool on_host = options.draft_on->kind == DraftPlace::Kind::kHost;
  if (options.job) return input_error(asked + ": over MPI draft models run beside rank 0: leave it out");
  if (on_host && options.hosts.empty())
    return input_error(asked + " is for --hosts: name them, or give the number of a stage");
  if (!on_host && options.hosts.empty() && options.profile.empty() && !options.simulated())
    return input_error(asked + " is for --hosts and --profile: in one process all share its cores; leave it out");
  return {};
}

}  // namespace

const std::string& SessionOptions::device(size_t stage) const {
  static const std::string cpu = kCpuDevice;
  return devices.empty() ? cpu : devices.size() == 1 ? devices.front() : devices[stage];
}

Status check(const SessionOptions& options) {
  SLUICE_TRY_STATUS(check_hosts(options));
  SLUICE_TRY_STATUS(check_draft_place(options));
  SLUICE_TRY_STATUS(check_devices(options));
  if (options.compute == Compute::kLazy && !options.simulated())
    return input_error("--compute lazy works only on a simulated clock: add --executor virtual");
  const bool can_be_stored = !options.simulated() && !options.profile.empty() && !options.memo.empty();
  if (options.compute == Compute::kStored && !can_be_stored)
    return input_error(
        "--compute stored is for stages that keep a pace, on the real clock: it needs --profile and "
        "--memo, a file that --executor virtual --compute lazy has filled");
  if (!options.memo.empty() && !options.lazy())
    return input_error("--memo keeps the results of --compute lazy, for stored too");
  SLUICE_TRY_STATUS(check(options.request.method_options));
  if (std::ranges::count(options.request.sources, SourceKind::kMtp) > 0 && options.lazy())
    return input_error("--compute lazy and stored compute no hidden states, which --source mtp reads: leave it out");
  if (!options.heads.empty() && options.lazy())
    return input_error("--compute lazy and stored compute no hidden states, which --head reads: leave it out");
  if (options.drafts.size() > policy::kMostDrafts)
    return input_error("--draft was given " + std::to_string(options.drafts.size()) +
                       " times; a hierarchy has at most " + std::to_string(policy::kMostDrafts) + " draft models");
  return check_sources(options);
}

}  // namespace sluice
