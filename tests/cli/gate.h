// A way to a port of this machine that lets connections through but for one: as where one host reaches another and a
// third one does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace sluice::test {

class Gate {
 public:
  // to: 127.0.0.1:PORT. The n-th connection that comes, from 0, is closed at once.
  Gate(const std::string& to, size_t closed);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();

  std::string address;  // where it listens

 private:
  void serve();
  void let_through(int from);

  uint16_t to_;
  size_t closed_;
  int listening_;
  std::mutex mutex_;  // guards the next two
  bool ending_ = false;
  std::list<int> open_;           // descriptors
  std::list<std::thread> pumps_;  // of the thread that serves, until that has ended
  std::thread serving_;
};

}  // namespace sluice::test
