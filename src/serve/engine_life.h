// What a process does that is a server's engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "session/session.h"

namespace sluice {

// Methods that requests may name: those that the engine has models for.
std::vector<std::string> methods_at_hand(const Session& session, const Engine& engine);

// Opens an engine and has it do what the other end of the socket asks (serve/engine_wire.h), until that end has gone.
// most_waiting: as of EngineThread.
void live_as_engine(const Session& session, int32_t concurrency, size_t most_waiting, int socket);

}  // namespace sluice
