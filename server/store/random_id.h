// server/store/random_id.h: random unique names. They must not influence anything that a job
// computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trainyard::server {

/// Returns `count` random bytes from the kernel.
std::string random_bytes(size_t count);
/// Returns a new uid of 32 hexadecimal digits. It begins with the time, so that new uids are
/// adjacent in an index and a commit writes one index page instead of one per job.
std::string random_uid(int64_t now_us);
/// Returns "j-" and 12 characters, of which the first 6 encode the time. The alphabet avoids
/// vowels, 0, 1 and l, so that an ID is easy to read aloud.
std::string random_job_id(int64_t now_us);
/// Returns the same as random_job_id(), but with the prefix "a-".
std::string random_array_id(int64_t now_us);

}  // namespace trainyard::server
