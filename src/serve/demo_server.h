// The live page without a model: two stored runs of one prompt, played at a pace.
#pragma once

#include <memory>

#include "serve/http_server.h"

namespace sluice {

// Errors as those of HttpServer::open().
Result<std::unique_ptr<HttpServer>> open_demo_server(const HttpOptions& options);

}  // namespace sluice
