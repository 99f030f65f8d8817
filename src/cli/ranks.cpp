#include "cli/ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "base/file.h"
#include "base/machine_memory.h"
#include "cli/output.h"
#include "transport/mpi_job.h"
#include "transport/stage_host.h"

namespace sluice {

namespace {

struct Launch {
  const char* by = nullptr;
  int32_t rank = 0, size = 1;
};

// How launchers tell a process who it is: Open MPI's mpirun, MPICH's (and srun --mpi=pmi2), srun.
struct Launcher {
  const char *by, *rank, *size;
};
constexpr Launcher kLaunchers[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"mpirun", "PMI_RANK", "PMI_SIZE"},
                                   {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

std::optional<int32_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int32_t number = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, number);
  return error == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

std::optional<Launch> launched() {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = number_in(launcher.rank), size = number_in(launcher.size);
    if (rank && size && *rank >= 0 && *rank < *size) return Launch{launcher.by, *rank, *size};
  }
  return std::nullopt;
}

Status check_ranks(const CLI::App& command, const SessionOptions& options, const Launch& launch) {
  const std::string ranks = std::string(launch.by) + " has started " + std::to_string(launch.size) + " ranks";
  if (command.get_option("--hosts")->count() > 0)
    return input_error("--hosts names the processes of the stages, and " + ranks +
                       " to be that: leave --hosts out, or start sluice without " + launch.by);
  if (command.get_option("--stages")->count() > 0 && options.stages != launch.size)
    return input_error("--stages " + std::to_string(options.stages) + ": " + ranks +
                       ", and each is a stage: leave it out, or add --executor threads");
  return {};
}

// Cores that a rank may take: those that it is bound to, or its share of the machine's.
int32_t cores_of(const MpiJob& job) {
  const auto all = std::max<int64_t>(1, ::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t bound;
  const auto n_bound = ::sched_getaffinity(0, sizeof bound, &bound) == 0 ? CPU_COUNT(&bound) : all;
  return static_cast<int32_t>(std::max<int64_t>(1, n_bound < all ? n_bound : all / job.ranks_here()));
}

Result<std::unique_ptr<StageHost>> hold_stage(const SessionOptions& options, const std::shared_ptr<MpiJob>& job) {
  return StageHost::open({.secret = {},
                          .job = job,
                          .cache = {.folder = cache_folder()},
                          .memory = machine_memory() / job->ranks_here(),
                          .threads = options.threads > 0 ? options.threads : cores_of(*job),
                          .patience = options.patience});
}

// Rank 0, which holds a stage too.
Status lead(SessionOptions& options, const std::shared_ptr<MpiJob>& job, const std::function<Status()>& run) {
  Status done;
  {
    SLUICE_TRY(const auto host, hold_stage(options, job));
    options.job = job;
    for (int32_t rank = 0; rank < job->size(); ++rank) options.hosts.push_back({.address = HostAddress::of_rank(rank)});
    try {
      done = run();
    } catch (const std::bad_alloc&) {
      done = runtime_error("out of memory: try a smaller --context or a smaller model");
    } catch (const std::exception& error) {
      done = runtime_error(error.what());
    }
  }
  const Status ended = job->end(options.patience);
  if (ended) return done;
  job->abort(report(done ? ended.error() : done.error()));
}

Status follow(const SessionOptions& options, const std::shared_ptr<MpiJob>& job) {
  {
    SLUICE_TRY(const auto host, hold_stage(options, job));
    job->wait_for_end();
  }
  return job->end(options.patience);
}

}  // namespace

bool is_follower() {
  const auto launch = launched();
  return launch && launch->rank != 0;
}

Status over_ranks(const CLI::App& command, SessionOptions& options, const std::function<Status()>& run) {
  const auto launch = launched();
  const bool asked = command.get_option("--executor")->count() > 0;
  const bool by_mpi = asked ? options.executor == ExecutorKind::kMpi : launch && launch->size > 1;
  if (!by_mpi || !launch) return run();
  if (const Status fits = check_ranks(command, options, *launch); !fits) return is_follower() ? Status() : fits;
  if (command.get_option("--patience")->count() == 0) options.patience = policy::kPatienceOfRanks;
  auto job = MpiJob::open();
  if (!job)
    return runtime_error((is_follower() ? HostAddress::of_rank(launch->rank).text() + ": " : "") + job.error().message);
  if ((*job)->size() == launch->size) return (*job)->rank() == 0 ? lead(options, *job, run) : follow(options, *job);
  const auto n = (*job)->size();
  SLUICE_TRY_STATUS((*job)->end(options.patience));
  if (is_follower()) return {};
  return runtime_error(std::string(launch->by) + " has started " + std::to_string(launch->size) +
                       " processes, and MPI knows of " + std::to_string(n) +
                       ": is it this MPI's mpirun? With Slurm: srun --mpi=pmix");
}

}  // namespace sluice
