#include "transport/network.h"

#include "transport/mpi_job.h"
#include "transport/socket_network.h"

namespace sluice {

std::unique_ptr<Network> make_network(const std::shared_ptr<MpiJob>& job, const std::optional<Secret>& secret) {
  return job != nullptr ? job->network() : std::make_unique<SocketNetwork>(secret);
}

}  // namespace sluice
