// client/cli/array_view.h: arrays of jobs for people.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/cli/session.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// "3 RUNNING, 5 QUEUED, 2 SUCCEEDED"
std::string states_text(const v1::JobArray& array);
/// One line for each.
std::string render_arrays(const v1::ListArraysResponse& arrays, bool colour);
/// The array, and a table of its members: best first where they have a metric, else by number; at
/// most `limit`.
std::string render_array(const v1::JobArray& array, const std::vector<v1::Job>& members,
                         int64_t limit, bool colour);
/// 1 if a member has FAILED, else 8 if one was CANCELLED, else 0.
int exit_code_of_array(const v1::JobArray& array);
/// "0.01 (recipe.optimizer.learning_rate), ..." of a member; empty for another job.
std::string array_text(const v1::Job& job);

/// All members, in the order of their numbers.
Result<std::vector<v1::Job>> read_members(client::Client& server, const std::string& array);
/// Shows the array in the session's format; for people with its members.
Status show_array(Session& session, const std::string& name, int64_t limit);
/// Waits until all members have ended. The exit code is the array's.
Result<int> wait_for_array(Session& session, const std::string& name, double timeout_s);

/// For a command about a job whose name may be an array's: its full name if the server has such an
/// array and no such job. Any other error of the call stays.
Result<std::string> find_array_named(client::Client& server, const std::string& job_name,
                                     const Error& error);
/// That error, or where there is an array of the name, a sentence with the command for arrays.
Error point_to_array(client::Client& server, const std::string& job_name, Error error,
                     const std::string& command);

}  // namespace trainyard::cli
