// Streams of bytes between the ranks of an MPI job, as many as are wanted, each like a connection over TCP.
//
// A message is a header of eight bytes and what its kind says: u8 kind, u8 whether it is for the side that opened the
// stream, u16 0, u32 the stream's number, which that side chose; little endian. Of a stream's bytes no more are sent
// than the receiver has granted, so that what lies in MPI, and here, is bounded: kMpiWindow of each stream.
#pragma once

#include <boost/asio/io_context.hpp>
#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/byte_stream.h"
#include "transport/message_passing.h"

namespace sluice {

inline constexpr size_t kMpiWindow = size_t{512} << 10;  // bytes that may be on their way

class MpiStream;

// All streams of a rank, and what ranks say to each other besides. Thread safety: none; the network's thread.
class MpiStreams : public std::enable_shared_from_this<MpiStreams> {
 public:
  // What one rank tells another about the job.
  enum class News : uint8_t {
    kLeave,  // rank 0: all is done
    kLeft,   // the others: they use no stream any more, and all that they have sent has gone
    kEnd,    // rank 0: nobody sends anything any more
  };

  // moved: is called when there is something on its way. Both outlive the streams' use.
  MpiStreams(boost::asio::io_context& io, MessagePassing& mpi, std::function<void()> moved)
      : io_(io), mpi_(mpi), moved_(std::move(moved)) {}

  std::unique_ptr<ByteStream> open(int32_t to);
  // Who gets the streams that others open; those too that came before. Empty: nobody, they wait.
  using Take = std::function<void(int32_t from, std::unique_ptr<ByteStream>)>;
  void take_opened(Take take);

  void tell(int32_t to, News news);
  std::function<void(int32_t from, News)> on_news;

  // Whether there was anything.
  bool progress();
  // Whether all that was sent has gone.
  bool idle() const { return n_going_ == 0; }
  // Nothing is sent any more, and nobody waits any more to be taken.
  void stop() {
    stopped_ = true;
    waiting_.clear();
  }

 private:
  friend class MpiStream;
  enum class Kind : uint8_t { kOpen, kBytes, kGrant, kShut, kGone, kNews };
  struct Key {
    int32_t peer = 0;
    bool ours = false;  // this side opened it
    uint32_t number = 0;
    auto operator<=>(const Key&) const = default;
  };

  std::unique_ptr<MpiStream> make(const Key& key);
  void forget(const MpiStream& stream);
  void send(Kind kind, const Key& key, std::span<const std::byte> contents, uint64_t ticket);
  void receive(int32_t from, Bytes message);
  void sent(uint64_t ticket);

  boost::asio::io_context& io_;
  MessagePassing& mpi_;
  const std::function<void()> moved_;
  std::map<Key, MpiStream*> streams_;         // that are open
  std::map<uint64_t, MpiStream*> by_ticket_;  // likewise
  std::vector<std::pair<int32_t, std::unique_ptr<ByteStream>>> waiting_;
  Take take_;
  uint32_t n_opened_ = 0;
  uint64_t n_made_ = 0;
  size_t n_going_ = 0;  // messages that MPI has not taken yet
  bool stopped_ = false;
};

}  // namespace sluice
