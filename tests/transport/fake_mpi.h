// MPI among threads of this process.
#pragma once

#include <memory>
#include <vector>

#include "transport/mpi_job.h"

namespace sluice::test {

// What is on its way between so many ranks, two of which share a machine: rank n is on machine n / 2.
class FakeMpi {
 public:
  explicit FakeMpi(int32_t size);
  ~FakeMpi();
  MpiJob::Start start(int32_t rank);

 private:
  struct Mail;
  class Rank;
  std::shared_ptr<Mail> mail_;
};

// A job of several ranks, all of which come to a good end.
class Ranks {
 public:
  explicit Ranks(int32_t size);
  ~Ranks();
  const std::shared_ptr<MpiJob>& job(int32_t rank) const { return jobs_[static_cast<size_t>(rank)]; }

 private:
  FakeMpi mpi_;
  std::vector<std::shared_ptr<MpiJob>> jobs_;
};

}  // namespace sluice::test
