// server/store/random_id.h: unique names. Not for anything that a job computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trainyard::server {

/// `count` bytes from the kernel.
std::string random_bytes(size_t count);
/// 32 hexadecimal digits: uids. They begin with the time, so that new ones are adjacent in an
/// index: a commit then writes one of its pages instead of one per job.
std::string random_uid(int64_t now_us);
/// "j-" and 12 characters that are easy to read aloud (no vowels, no 0, 1, l), the time first.
std::string random_job_id(int64_t now_us);
/// The same beginning with "a-".
std::string random_array_id(int64_t now_us);

}  // namespace trainyard::server
