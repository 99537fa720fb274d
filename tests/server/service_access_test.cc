// Tests of the access table through the whole daemon: every method, by every role and owner, for
// objects of the caller's project, of another project, shared ones and absent ones. What is
// expected is written here once more and not taken from the table. They fail if a call is let
// through that should not be or the reverse, if a refusal changes the store, and if a stranger can
// tell an object that exists from one that does not.
#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "server/handlers/access.h"
#include "server/handlers/audited_call.h"
#include "src/base/check.h"
#include "tests/server/access_support.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {
namespace {

// The callers, in the order of the letters below. `owner`, for whom `service` acts, owns the
// objects in both projects, but has no role in "secret".
constexpr std::array<const char*, 8> kCallers{"stranger",   "viewer",   "member", "owner",
                                              "maintainer", "operator", "admin",  "service"};

// What each caller gets: "+" the handler's answer, "n" PROJECT_NOT_FOUND, "r" ROLE_REQUIRED, "a"
// ACTING_FOR_DENIED.
struct Expected {
  const char* own;      // an object in a project of the caller
  const char* absent;   // an object there that does not exist
  const char* other;    // an object in another project, whether or not it exists
  const char* missing;  // a project that does not exist
};
constexpr Expected kReads{"n++++n++", "n++++n++", "nnnnnn+n", "nnnnnnnn"};
constexpr Expected kCreates{"nr+++n++", "nr+++n++", "nnnnnn+n", "nnnnnnnn"};
constexpr Expected kOwns{"nrr++n++", "nr+++n++", "nnnnnn+n", "nnnnnnnn"};
constexpr Expected kMaintains{"nrrr+n+r", "nrrr+n+r", "nnnnnn+n", "nnnnnnnn"};
constexpr Expected kQueues{"nrr+++++", "nr++++++", "nnnnn++n", "nnnnn++n"};
constexpr Expected kSeesQueue{"n+++++++", "n+++++++", "nnnnn++n", "nnnnn++n"};
constexpr Expected kAll{"++++++++", "++++++++", "++++++++", "++++++++"};
constexpr Expected kOperates{"rrrrr++r", "rrrrr++r", "rrrrr++r", "rrrrr++r"};
constexpr Expected kAdministers{"rrrrrr+r", "rrrrrr+r", "rrrrrr+r", "rrrrrr+r"};
constexpr Expected kAdministersInPerson{"rrrrrr+a", "rrrrrr+a", "rrrrrr+a", "rrrrrr+a"};
constexpr Expected kOwnsTokens{"rrr+rr+a", "rrr+rr+a", "rrr+rr+a", "rrr+rr+a"};
constexpr Expected kListsTokens{"rrr+rr++", "rrr+rr++", "rrr+rr++", "rrr+rr++"};
constexpr Expected kInPerson{"+++++++a", "+++++++a", "+++++++a", "+++++++a"};

struct Case {
  const char* method;
  Expected expected;
  // The request; $P is the project and $O the object. Requests that are let through change nothing
  // that another case needs: they are repeated, or the handler refuses them for another reason.
  const char* request;
  const char* object = "";  // what stands for $O if it is to exist
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"SubmitJob", kCreates, "parent: 'projects/$P' validate_only: true $S"},
      {"PlanJob", kReads, "parent: 'projects/$P' $S"},
      {"ReadSpec", kAll, "kind: JOB text: 'epochs: 2'"},
      {"GetJob", kReads, "name: 'projects/$P/jobs/$O'", "ended"},
      {"ListJobs", kReads, "parent: 'projects/$P'"},
      {"WatchJob", kReads, "name: 'projects/$P/jobs/$O'", "ended"},
      {"CancelJob", kOwns, "name: 'projects/$P/jobs/$O'", "ended"},
      {"SetJobPriority", kQueues, "name: 'projects/$P/jobs/$O'", "paused"},
      {"PauseJob", kOwns, "name: 'projects/$P/jobs/$O'", "ended"},
      {"ResumeJob", kOwns, "name: 'projects/$P/jobs/$O'", "ended"},
      {"RetryJob", kCreates, "name: 'projects/$P/jobs/$O'", "paused"},
      {"ForkJob", kCreates, "name: 'projects/$P/jobs/$O' validate_only: true", "ended"},
      {"ListCheckpoints", kReads, "name: 'projects/$P/jobs/$O'", "ended"},
      {"ListQueue", kSeesQueue, "parent: 'projects/$P' name: 'projects/$P/jobs/$O'", "paused"},
      {"SubmitArray", kCreates,
       "parent: 'projects/$P' validate_only: true $S array { list { values { key: "
       "'recipe.seed' value: '1' } } }"},
      {"GetArray", kReads, "name: 'projects/$P/arrays/$O'", "sweep"},
      {"ListArrays", kReads, "parent: 'projects/$P'"},
      {"CancelArray", kOwns, "name: 'projects/$P/arrays/$O'", "swept"},
      {"PauseArray", kOwns, "name: 'projects/$P/arrays/$O'", "swept"},
      {"ResumeArray", kOwns, "name: 'projects/$P/arrays/$O'", "swept"},
      {"DeleteArray", kOwns, "name: 'projects/$P/arrays/$O'", "sweep"},
      {"DeleteJob", kOwns, "name: 'projects/$P/jobs/$O'", "paused"},
      {"UploadFile", kCreates, "start { parent: 'projects/$P' sha256: '$H' size_bytes: 4 }"},
      {"GetUpload", kReads, "name: 'projects/$P/uploads/$O'", "$W"},
      {"CreateDataset", kCreates,
       "parent: 'projects/$P' dataset_id: 'iris' validate_only: true "
       "spec { sources { role: DATA sha256: '$H' } csv { target: 'species' } }"},
      {"GetDataset", kReads, "name: 'projects/$P/datasets/$O'", "iris"},
      {"ListDatasets", kReads, "parent: 'projects/$P'"},
      {"DeleteDataset", kOwns, "name: 'projects/$P/datasets/$O'", "iris"},
      {"CreateModel", kCreates, "parent: 'projects/$P' model_id: 'base' sha256: '$H'"},
      {"ListModels", kReads, "parent: 'projects/$P'"},
      {"GetModel", kReads, "name: 'projects/$P/models/$O'", "base"},
      {"DownloadModel", kReads, "name: 'projects/$P/models/$O'", "base"},
      {"Predict", kReads, "name: 'projects/$P/models/$O' csv: '1'", "base"},
      {"Generate", kReads, "name: 'projects/$P/models/$O' prompt: 'a'", "base"},
      {"Evaluate", kReads, "name: 'projects/$P/models/$O' dataset: 'projects/$P/datasets/iris'",
       "base"},
      {"DeleteModel", kOwns, "name: 'projects/$P/models/$O'", "base"},
      {"GetServerInfo", kAll, ""},
      {"ListDevices", kAll, ""},
      {"DrainDevice", kOperates, "name: 'devices/cpu'"},
      {"ResumeDevice", kOperates, "name: 'devices/gpu-7'"},
      {"Backup", kOperates, ""},
      {"CollectGarbage", kOperates, "dry_run: true"},
      {"ListAudit", kAdministers, ""},
      {"SetQuota", kAdministers, "kind: DEVICES"},
      {"ListQuotas", kAll, ""},
      {"GetUsage", kAll, ""},
      {"WhoAmI", kAll, ""},
      {"ListPeople", kAdministers, ""},
      {"SetPerson", kAdministersInPerson, "name: '/'"},
      {"RemovePerson", kAdministers, "name: 'nobody'"},
      {"ListProjects", kAll, ""},
      {"CreateProject", kAdministers, "project_id: '$P-'"},
      {"SetProjectDevices", kOperates, "name: 'projects/$P' devices: 'none such'"},
      {"DeleteProject", kAdministers, "name: 'projects/default'"},
      {"ListMembers", kReads, "parent: 'projects/$P'"},
      {"SetMember", kMaintains, "parent: 'projects/$P' person: 'viewer'"},
      {"CreateToken", kOwnsTokens, "person: 'owner' name: '/'"},
      {"RotateToken", kInPerson, "id: 't-0000000000000000'"},
      {"RevokeToken", kInPerson, "id: 't-0000000000000000'"},
      {"ListTokens", kListsTokens, "person: 'owner'"},
      {"Share", kOwns, "name: 'projects/$P/datasets/$O' with_project: 'projects/$P'", "iris"},
      {"Unshare", kOwns, "name: 'projects/$P/datasets/$O' with_project: 'projects/none'", "iris"},
      {"ListShares", kReads, "parent: 'projects/$P'"},
  };
  return all;
}

char letter_of(const std::string& reason) {
  if (reason == "PROJECT_NOT_FOUND") return 'n';
  if (reason == "ROLE_REQUIRED") return 'r';
  return reason == "ACTING_FOR_DENIED" ? 'a' : '+';
}

class ServiceAccess : public ServiceAccessTest {
 protected:
  std::string request_of(const Case& c, const std::string& project, bool exists) {
    const std::string digest = sha256_hex("absent");
    std::string object = exists ? c.object : std::string(c.object) + "x";
    if (std::string_view(c.object) == "$W") object = exists ? sha256_hex(weights_file()) : digest;
    std::string text = replaced(c.request, "$S", kSpec);
    text = replaced(replaced(text, "$O", object), "$H", digest);
    return replaced(text, "$P", project);
  }

  /// Makes the call as everyone and compares with the letters. A refusal must leave the store as it
  /// was.
  void expect_letters(const Case& c, const char* letters, const std::string& request) {
    const google::protobuf::MethodDescriptor* const method = find_method(c.method);
    ASSERT_NE(method, nullptr) << c.method;
    const auto message = message_of(*method->input_type(), request);
    std::string before;
    std::string got;
    std::string said;
    for (const char* caller : kCallers) {
      if (before.empty()) before = digest_of_store(config_.state_dir);
      Reply reply = call(as(caller), *method, *message);
      const bool recorded = is_audited(c.method) &&
                            request.find("validate_only: true") == std::string::npos &&
                            request.find("dry_run: true") == std::string::npos;
      // The daemon may have stored something of its own meanwhile, such as the end of a job, so a
      // refused call that seems to have changed the store is repeated.
      std::string after = digest_of_store(config_.state_dir);
      for (int i = 0; i < 5 && letter_of(reply.reason()) != '+' && after != before; ++i) {
        if (recorded) refusals_.insert({c.method, reply.reason()});
        before = std::exchange(after, "");
        reply = call(as(caller), *method, *message);
        after = digest_of_store(config_.state_dir);
      }
      got += letter_of(reply.reason());
      said +=
          std::string("\n  ") + caller + ": " + reply.reason() + " " + reply.status.error_message();
      if (got.back() == '+') {
        before.clear();
        continue;
      }
      EXPECT_EQ(after, before) << c.method << " { " << request << " } was refused to " << caller
                               << " and changed the store";
      EXPECT_TRUE(reply.messages.empty()) << c.method << " to " << caller;
      if (recorded) refusals_.insert({c.method, reply.reason()});
    }
    EXPECT_EQ(got, letters) << c.method << " { " << request << " } as stranger, viewer, member, "
                            << "owner, maintainer, operator, admin and service:" << said;
  }

  /// Returns how many entries of the audit have this action and result.
  size_t count_entries(const std::string& action, const std::string& result) {
    size_t count = 0;
    v1::ListAuditRequest request;
    request.set_action(action);
    request.set_page_size(1000);
    do {
      v1::ListAuditResponse response;
      EXPECT_TRUE(system_->ListAudit(context().get(), request, &response).ok());
      count += static_cast<size_t>(
          std::ranges::count(response.entries(), result, &v1::AuditEntry::result));
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return count;
  }

  std::multiset<std::pair<std::string, std::string>> refusals_;  // of audited methods, with reason
};

TEST_F(ServiceAccess, EveryMethodHasACaseAndARow) {
  std::set<std::string> tested;
  for (const Case& c : cases()) EXPECT_TRUE(tested.insert(c.method).second) << c.method << " twice";
  std::vector<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::Dataset::descriptor()->file(),
        v1::Model::descriptor()->file(), v1::ServerInfo::descriptor()->file(),
        v1::Person::descriptor()->file()}) {
    check_access_rows(*file->service(0));
    for (int i = 0; i < file->service(0)->method_count(); ++i) {
      methods.push_back(file->service(0)->method(i)->name());
      EXPECT_TRUE(tested.contains(methods.back())) << methods.back() << " has no case in this test";
    }
  }
  EXPECT_THROW(check_access_rows(*v1::WorkerReport::descriptor()->file()->service(0)),
               InvariantError)
      << "the service for workers has no rows";
  std::vector<std::string> rows;
  for (const AccessRow& row : access_rows()) rows.emplace_back(row.method);
  EXPECT_EQ(rows, methods) << "by service and in the proto's order";
}

TEST_F(ServiceAccess, EachCallIsForTheRolesAndOwnersThatItIsFor) {
  for (const Case& c : cases()) {
    const bool has_project = std::string_view(c.request).find("$P") != std::string_view::npos;
    const bool has_object = c.object[0] != '\0';
    expect_letters(c, c.expected.own, request_of(c, "vision", true));
    if (has_object) expect_letters(c, c.expected.absent, request_of(c, "vision", false));
    if (!has_project) continue;
    expect_letters(c, c.expected.other, request_of(c, "secret", true));
    if (has_object) expect_letters(c, c.expected.other, request_of(c, "secret", false));
    expect_letters(c, c.expected.missing, request_of(c, "secreu", true));
    if (HasFatalFailure()) return;
  }
  for (auto it = refusals_.begin(); it != refusals_.end(); it = refusals_.upper_bound(*it)) {
    const size_t count = refusals_.count(*it);
    EXPECT_TRUE(eventually([&] { return count_entries(it->first, it->second) == count; }))
        << it->first << " was refused " << count << " times with " << it->second
        << ", and the audit has " << count_entries(it->first, it->second) << " such entries";
  }
}

TEST_F(ServiceAccess, AStrangerCannotTellWhatExists) {
  for (const Case& c : cases()) {
    if (std::string_view(c.request).find("$P") == std::string_view::npos) continue;
    for (const char* caller : {"stranger", "member", "service"}) {
      const auto answer = [&](const std::string& project, bool exists) {
        const Reply reply = call(as(caller), c.method, request_of(c, project, exists));
        const std::string all = std::to_string(reply.status.error_code()) + " " +
                                reply.status.error_message() + " " + reply.status.error_details();
        return replaced(all, "secreu",
                        "secret");  // equal lengths, so that all else can be compared
      };
      const std::string existing = answer("secret", true);
      EXPECT_EQ(answer("secret", false), existing) << c.method << ": an absent object";
      EXPECT_EQ(answer("secreu", true), existing) << c.method << ": an absent project";
    }
  }
}

TEST_F(ServiceAccess, WhatIsSharedIsReadAndUsedButNotChanged) {
  const std::string dataset = "projects/secret/datasets/shared";
  const std::string model = "projects/secret/models/shared";
  constexpr const char* kRead = "n++++n++";
  constexpr const char* kNotChanged = "nnnnnn+n";
  const auto expect = [&](const char* method, const char* letters, const std::string& request) {
    expect_letters({method, kAll, ""}, letters, request);
  };
  const std::string named = "name: '" + dataset + "'";
  expect("GetDataset", kNotChanged, named);
  for (const std::string& name : {dataset, model}) {
    must(as("admin"), "Share", "name: '" + name + "' with_project: 'projects/vision'");
  }
  expect("GetDataset", kRead, named);
  expect("GetDataset", kRead, "name: '" + dataset + "@1'");
  expect("GetDataset", kNotChanged, "name: 'projects/secret/datasets/iris'");
  expect("GetModel", kRead, "name: '" + model + "'");
  expect("DownloadModel", kRead, "name: '" + model + "'");
  expect("Predict", kRead, "name: '" + model + "' csv: '1'");
  expect("Evaluate", kRead, "name: '" + model + "' dataset: '" + dataset + "'");
  expect("Evaluate", kNotChanged, "name: '" + model + "' dataset: 'projects/secret/datasets/iris'");
  expect("Share", kNotChanged, named + " with_project: 'projects/vision'");
  // The admin's calls succeed, so each ends what the ones before it need.
  expect("Unshare", kNotChanged, named + " with_project: 'projects/vision'");
  expect("GetDataset", kNotChanged, named);
  must(as("admin"), "Share", "name: '" + dataset + "@1' with_project: 'projects/vision'");
  expect("GetDataset", kRead, "name: '" + dataset + "@1'");
  expect("GetDataset", kNotChanged, named);
  expect("DeleteDataset", kNotChanged, named);
  expect("DeleteModel", kNotChanged, "name: '" + model + "'");
}

TEST_F(ServiceAccess, ARefusalNamesTheRoleNeededAndTheRoleHeld) {
  const auto text = [&](const char* caller, const char* method, const std::string& request) {
    return call(as(caller), method, request).status.error_message();
  };
  EXPECT_EQ(text("viewer", "SubmitJob", "parent: 'projects/vision'"),
            "SubmitJob needs the role member in the project vision, and you are a viewer; its "
            "maintainers can change that");
  EXPECT_EQ(text("member", "CancelJob", "name: 'projects/vision/jobs/paused'"),
            "projects/vision/jobs/paused belongs to owner; CancelJob needs the role maintainer in "
            "the project vision, and you are a member; its maintainers can change that");
  EXPECT_EQ(text("maintainer", "DrainDevice", "name: 'devices/cpu'"),
            "DrainDevice needs the role operator on this server, and you are a user; an admin can "
            "change that");
  EXPECT_EQ(text("operator", "ListAudit", ""),
            "ListAudit needs the role admin on this server, and you are an operator; an admin can "
            "change that");
  EXPECT_EQ(text("stranger", "GetJob", "name: 'projects/vision/jobs/paused'"),
            "there is no project 'vision', or you are not a member of it; 'trainyard project list' "
            "shows yours");
  EXPECT_EQ(text("service", "CreateToken", "name: 'mine'"),
            "CreateToken is refused to services that act for a person; owner must call it with a "
            "token of their own");
}

TEST_F(ServiceAccess, APriorityAboveZeroNeedsAnOperator) {
  const std::string job = "name: 'projects/vision/jobs/paused' ";
  const auto priority = [&](const char* caller, int value) {
    return call(as(caller), "SetJobPriority", job + "priority: " + std::to_string(value)).reason();
  };
  EXPECT_EQ(priority("owner", 1), "ROLE_REQUIRED");
  EXPECT_EQ(priority("maintainer", 1), "ROLE_REQUIRED");
  EXPECT_EQ(priority("owner", -5), "OK");
  EXPECT_EQ(priority("owner", 0), "OK");
  EXPECT_EQ(priority("operator", 7), "OK");
  const auto with_priority = [&](const std::string& request, int value) {
    return replaced(replaced(replaced(request, "$S", kSpec), "$P", "vision"), "spec {",
                    "spec { priority: " + std::to_string(value) + " ");
  };
  const std::string submit = "parent: 'projects/vision' $S ";
  for (const char* extra : {"", " validate_only: true"}) {
    EXPECT_EQ(call(as("member"), "SubmitJob", with_priority(submit + extra, 1)).reason(),
              "ROLE_REQUIRED");
    EXPECT_EQ(call(as("member"), "SubmitArray",
                   with_priority(submit + extra +
                                     " array { list { values { key: "
                                     "'recipe.seed' value: '1' } } }",
                                 1))
                  .reason(),
              "ROLE_REQUIRED");
    EXPECT_EQ(call(as("member"), "SubmitArray",
                   with_priority(submit + extra +
                                     " array { list { values { key: "
                                     "'priority' value: '1' } } }",
                                 0))
                  .reason(),
              "ROLE_REQUIRED");
  }
  EXPECT_EQ(call(as("member"), "SubmitJob", with_priority(submit, -1)).reason(), "OK");
  must(as("admin"), "SubmitJob", with_priority(submit + " job_id: 'urgent'", 9));
  must(as("admin"), "CancelJob", "name: 'projects/vision/jobs/urgent'");
  const std::string urgent = "name: 'projects/vision/jobs/urgent' ";
  EXPECT_EQ(call(as("member"), "RetryJob", urgent).reason(), "ROLE_REQUIRED");
  EXPECT_EQ(call(as("member"), "ForkJob", urgent).reason(), "ROLE_REQUIRED");
  EXPECT_EQ(call(as("admin"), "RetryJob", urgent).reason(), "OK");
}

TEST_F(ServiceAccess, ARepeatedRequestGivesOnlyOnesOwnJob) {
  const std::string id = "request_id: '7d444840-9dc0-11d1-b245-5ffdce74fad2' ";
  const std::string submit = replaced("parent: 'projects/vision' " + id + kSpec, "$P", "vision");
  v1::Job first;
  v1::Job again;
  parsed(must(as("owner"), "SubmitJob", submit), first);
  EXPECT_EQ(parsed(must(as("owner"), "SubmitJob", submit), again).name(), first.name());
  EXPECT_EQ(parsed(must(as("service"), "SubmitJob", submit), again).name(), first.name());
  EXPECT_EQ(call(as("member"), "SubmitJob", submit).reason(), "REQUEST_ID_REUSED");
  EXPECT_EQ(call(as("admin"), "SubmitJob", submit).reason(), "REQUEST_ID_REUSED");
  const std::string retry =
      "name: 'projects/vision/jobs/ended' request_id: '7d444840-9dc0-11d1-b245-5ffdce74fad3'";
  parsed(must(as("owner"), "RetryJob", retry), first);
  EXPECT_EQ(parsed(must(as("owner"), "RetryJob", retry), again).name(), first.name());
  EXPECT_EQ(call(as("member"), "RetryJob", retry).reason(), "REQUEST_ID_REUSED");
  const std::string array = submit +
                            " array_id: 'twice' array { list { values { key: "
                            "'recipe.seed' value: '1' } } }";
  const std::string other = replaced(array, "fad2", "fad4");
  must(as("owner"), "SubmitArray", other);
  must(as("owner"), "SubmitArray", other);
  EXPECT_EQ(call(as("member"), "SubmitArray", other).reason(), "REQUEST_ID_REUSED");
}

}  // namespace
}  // namespace trainyard::server
