// Links of a profile where there are none: frames stay with who sends them until the link would have brought them.
#pragma once

#include <memory>

#include "pipeline/link_clock.h"
#include "transport/connection.h"

namespace sluice {

// A way to the peer of `connection` for who sends by it: frames leave when they would arrive by this link, in their
// order. A way has a link of its own, so what goes by another one to the same peer overtakes. One whose link costs
// nothing is the connection itself. It may go while frames are on it; they are lost then, and what it sends by must
// have ended or have room.
std::shared_ptr<Connection> over_link(std::shared_ptr<Connection> connection, LinkClock link);

}  // namespace sluice
