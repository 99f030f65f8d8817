// A row that is to enter a model.
#pragma once

#include <cstdint>

#include "engine/request.h"

namespace sluice {

struct Planned {
  Request* request = nullptr;  // whose it is
  NodeId node;                 // none: the next prompt row
  uint32_t turn = 0;           // its request's, among those that run
  double worth = 0.0;  // log of the probability that the row is of use, its source's word taken for what it has shown
};

}  // namespace sluice
