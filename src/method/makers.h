// The methods, each in a file of its own.
#pragma once

#include <memory>

#include "method/method.h"

namespace sluice {

std::unique_ptr<Method> make_autoregressive(const MethodOptions& options);
std::unique_ptr<Method> make_sd(const MethodOptions& options);
std::unique_ptr<Method> make_specinfer(const MethodOptions& options);
std::unique_ptr<Method> make_spd(const MethodOptions& options);
std::unique_ptr<Method> make_specpipe(const MethodOptions& options);
std::unique_ptr<Method> make_surge(const MethodOptions& options);
std::unique_ptr<Method> make_pipespec(const MethodOptions& options);
std::unique_ptr<Method> make_ssd(const MethodOptions& options);

}  // namespace sluice
