-- Health of Cadastre's objects, and of the IPAddressClaims that it serves, for Argo CD.
-- Argo CD runs it with the object as obj. docs/gitops.md says what each result means.

-- Reasons of Ready=False that only a person ends: by another request, more space, a higher
-- limit, or the end of a holder.
local degraded = {
  CannotFit = true,
  Conflict = true,
  Invalid = true,
  LimitReached = true,
  NotDefault = true,
  NotServed = true,
  PolicyViolation = true,
  PoolExhausted = true,
  RecordRefused = true,
  TooManyWaiting = true,
}

local health = { status = "Progressing", message = "Not reconciled yet" }
if obj.status == nil or obj.status.conditions == nil then
  return health
end
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    if condition.observedGeneration ~= nil and condition.observedGeneration ~= obj.metadata.generation then
      return health
    end
    health.message = condition.message
    if condition.message == nil or condition.message == "" then
      health.message = condition.reason
    end
    if condition.status == "True" then
      health.status = "Healthy"
    elseif condition.reason == "Paused" then
      health.status = "Suspended"
    elseif degraded[condition.reason] then
      health.status = "Degraded"
    end
  end
end
return health
