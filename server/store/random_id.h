// server/store/random_id.h: names that nobody else has. Not for anything a job computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trainyard::server {

/// `count` bytes from the kernel.
std::string random_bytes(size_t count);
/// 32 hexadecimal digits: uids. They begin with the time, so that new ones lie side by side in an
/// index: a commit then writes one of its pages and not one for each job.
std::string random_uid(int64_t now_us);
/// "j-" and 12 characters that are easy to read out loud (no vowels, no 0, 1, l), the time first.
std::string random_job_id(int64_t now_us);

}  // namespace trainyard::server
