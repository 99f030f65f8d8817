// Frames as they go over a connection: cut into chunks, so that a frame that is urgent never waits behind a large one.
//
// A chunk is a header of eight bytes and its contents: 'S', 'L', its kind (0: of a frame, 1: a heartbeat), its flags
// (1: bulk, 2: the last of its frame), and u32 how many bytes of contents follow, little endian. A frame's chunks come
// in order, those of an urgent frame between those of a bulk one. A heartbeat's contents are a u64, how far its sender
// has got.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "transport/buffers.h"

namespace sluice {

enum class Priority : uint8_t { kUrgent, kBulk };
inline constexpr size_t kPriorities = 2;

inline constexpr size_t kChunkBytes = size_t{64} << 10;  // of contents, at most
inline constexpr size_t kChunkHeaderBytes = 8;

// What is on its way out. Thread safety: none.
class ChunkWriter {
 public:
  // REQUIRES: it is not empty.
  void add(Bytes frame, Priority priority);
  // For a frame to be added.
  Bytes buffer() { return buffers_.take(); }
  // A heartbeat goes before anything else; it takes the place of one that has not gone yet.
  void beat(uint64_t progress) { beat_ = progress; }

  // Bytes of frames that have not gone yet.
  size_t waiting(Priority priority) const { return queue(priority).waiting; }

  // Puts what goes next into `out`, in place of what is there: about a chunk, small frames together. False: nothing
  // waits.
  bool fill(Bytes& out);

 private:
  struct Queue {
    Fifo<Bytes> frames;
    size_t gone = 0;  // bytes of the first
    size_t waiting = 0;
  };
  Queue& queue(Priority priority) { return queues_[static_cast<size_t>(priority)]; }
  const Queue& queue(Priority priority) const { return queues_[static_cast<size_t>(priority)]; }
  void put_chunk(Priority priority, Bytes& out);

  std::array<Queue, kPriorities> queues_;
  Buffers buffers_;
  std::optional<uint64_t> beat_;
};

// What has come in, put together again. Whatever comes, it holds no more than the frames in hand, one of each priority,
// and of those no more than twice what has come. Thread safety: none.
class ChunkReader {
 public:
  struct Sink {
    std::function<void(Bytes, Priority)> frame;
    std::function<void(uint64_t)> beat;
    std::function<Bytes()> buffer = [] { return Bytes(); };  // for a frame that begins
  };

  // most: bytes of a frame.
  explicit ChunkReader(size_t most) : most_(most) {}
  void set_most(size_t most) { most_ = most; }

  // Some more bytes, cut anywhere. Errors (kRuntime): no peer of ours sends that. After one this is of no more use.
  Status take(std::span<const std::byte> bytes, const Sink& sink);

  uint64_t taken() const { return taken_; }  // bytes of frames so far
  // A frame has begun, and not ended.
  bool in_the_middle() const { return n_header_ > 0 || !frames_[0].empty() || !frames_[1].empty(); }

 private:
  Status begin_chunk(const Sink& sink);
  Status end_chunk(const Sink& sink);
  Bytes& frame();

  size_t most_;
  std::array<std::byte, kChunkHeaderBytes> header_{};
  size_t n_header_ = 0;  // bytes of it that have come
  size_t left_ = 0;      // bytes of the chunk's contents that have not
  std::array<Bytes, kPriorities> frames_;
  Bytes beat_;
  uint64_t taken_ = 0;
  bool greeted_ = false;  // a chunk of ours has come
};

}  // namespace sluice
