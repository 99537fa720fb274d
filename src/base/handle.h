// src/base/handle.h: owners of C handles (`Close` is the library's release function) and of file
// descriptors.
#pragma once

#include <memory>

namespace trainyard {

template <typename T, auto Close>
struct CloseWith {
  void operator()(T* p) const noexcept { (void)Close(p); }
};
template <typename T, auto Close>
using Handle = std::unique_ptr<T, CloseWith<T, Close>>;

/// Owns a POSIX file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& o) noexcept : fd_(o.release()) {}
  UniqueFd& operator=(UniqueFd&& o) noexcept {
    reset(o.release());
    return *this;
  }
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

}  // namespace trainyard
