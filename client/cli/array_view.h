// client/cli/array_view.h: shows arrays of jobs to people.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/cli/session.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// Returns the number of members in each state: "3 RUNNING, 5 QUEUED, 2 SUCCEEDED".
std::string states_text(const v1::JobArray& array);
/// Returns a table with one line per array.
std::string render_arrays(const v1::ListArraysResponse& arrays, bool colour);
/// Returns the text of the array and a table of at most `limit` members. The table begins with the
/// best members if all have a common metric; else it is sorted by number. Before it, mean and
/// spread of the metric are shown if members differ by fold or seed.
std::string render_array(const v1::JobArray& array, const std::vector<v1::Job>& members,
                         int64_t limit, bool colour);
/// Returns exit code 1 if a member has FAILED, else 8 if one was CANCELLED, else 0.
int exit_code_of_array(const v1::JobArray& array);
/// Returns the values of an array's member, "0.01 (recipe.optimizer.learning_rate), ..."; empty for
/// a job outside arrays.
std::string array_text(const v1::Job& job);

/// Reads all members of an array, in the order of their numbers.
Result<std::vector<v1::Job>> read_members(client::Client& server, const std::string& array);
/// Shows the array in the session's format, with its members if that is for people.
Status show_array(Session& session, const std::string& name, int64_t limit);
/// Waits until all members have ended. Returns the array's exit code.
Result<int> wait_for_array(Session& session, const std::string& name, double timeout_s);

/// A command about a job calls this after the call for `job_name` failed with `error`. Returns the
/// full name of the array with that name if the server has one and no such job. Returns any other
/// `error` unchanged.
Result<std::string> find_array_named(client::Client& server, const std::string& job_name,
                                     const Error& error);
/// Returns `error`; or if an array has that name, an error that names the command for arrays.
Error point_to_array(client::Client& server, const std::string& job_name, Error error,
                     const std::string& command);

}  // namespace trainyard::cli
