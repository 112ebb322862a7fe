import { Loader, SectionBox } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Alert, Table, TableBody, TableCell, TableHead, TableRow, Typography } from '@mui/material';
import { type Claim, claimOf, isHolding, type Standing, standingOf } from './around';
import { AroundBlock } from './AroundBlock';
import { ObjectLink } from './ObjectLink';
import type { AllocationObject } from './objects';
import { isDecided, readingOf } from './readings';
import { IPAllocation, objectsOf } from './resources';
import { Fact, Facts } from './Selected';

interface Resource {
  jsonData?: unknown;
  cluster?: string;
}

/** Renders the section on the pages of IPClaims and IPAddressClaims; nothing on other pages. */
export function ClaimSection({ resource }: { resource: Resource | null }) {
  const claim = claimOf(resource?.jsonData);
  if (!claim) return null;
  return <OfClaim claim={claim} cluster={resource?.cluster ?? ''} />;
}

function OfClaim({ claim, cluster }: { claim: Claim; cluster: string }) {
  const { name, namespace } = claim.object.metadata;
  const listed = IPAllocation.useList({
    cluster,
    namespace,
    fieldSelector: `spec.claimRef.name=${name}`,
  });
  const reading = readingOf('ipallocations', listed);
  const standing = standingOf(claim, objectsOf<AllocationObject>(listed));
  if (isHolding(claim) && !standing.cidr && !isDecided(reading)) {
    return (
      <SectionBox title="Addresses">
        <Loader title="Reading the block of this claim" />
      </SectionBox>
    );
  }
  const unread = reading.state === 'forbidden' || reading.state === 'failed' ? reading.message : '';
  return (
    <SectionBox title="Addresses">
      {isHolding(claim) ? (
        <Holds claim={claim} standing={standing} cluster={cluster} unread={unread} />
      ) : (
        <Waits claim={claim} standing={standing} cluster={cluster} />
      )}
      {standing.pool && (
        <AroundBlock claim={claim} standing={standing} pool={standing.pool} cluster={cluster} />
      )}
    </SectionBox>
  );
}

interface StandingProps {
  claim: Claim;
  standing: Standing;
  cluster: string;
}

function Holds({ claim, standing, cluster, unread }: StandingProps & { unread: string }) {
  const { namespace } = claim.object.metadata;
  const { cidr, record, pool } = standing;
  return (
    <>
      {unread && (
        <Alert severity="info">
          {`You may not list IPAllocations in namespace ${namespace}, so the record of the block is not shown: ${unread}`}
        </Alert>
      )}
      {!unread && !record && (
        <Alert severity="warning">
          No IPAllocation of this claim is found. The operator records the block again, or the claim
          is about to wait.
        </Alert>
      )}
      <Facts>
        {cidr && <Fact label="Block">{cidr}</Fact>}
        {pool && (
          <Fact label="Pool">
            <PoolLink claim={claim} pool={pool} cluster={cluster} />
          </Fact>
        )}
        {record?.spec.className && <Fact label="Class">{record.spec.className}</Fact>}
        {record?.spec.project && <Fact label="Project">{record.spec.project}</Fact>}
        {record?.spec.requestedBy && <Fact label="Requested by">{record.spec.requestedBy}</Fact>}
        {record && (
          <Fact label="Record">
            <ObjectLink
              object={{ kind: 'IPAllocation', namespace, name: record.metadata.name }}
              cluster={cluster}
            />
          </Fact>
        )}
      </Facts>
    </>
  );
}

function PoolLink({
  claim,
  pool,
  cluster,
}: {
  claim: Claim;
  pool: NonNullable<Standing['pool']>;
  cluster: string;
}) {
  const kind = pool.kind || 'IPPool';
  const namespace = kind === 'LocalIPPool' ? claim.object.metadata.namespace : undefined;
  return <ObjectLink object={{ kind, namespace, name: pool.name }} cluster={cluster} />;
}

function Waits({ claim, standing, cluster }: StandingProps) {
  const { reason, message, candidates, omitted, asked } = standing;
  return (
    <>
      <Typography>
        {asked ? `It waits for exactly ${asked}. ` : 'It waits. '}
        <strong>{reason}</strong>
        {message && `: ${message}`}
      </Typography>
      {candidates.length > 0 && (
        <Table size="small" aria-label="Pools that could serve it">
          <TableHead>
            <TableRow>
              <TableCell>Pool that could serve it</TableCell>
              <TableCell>Why it does not</TableCell>
              <TableCell>In detail</TableCell>
            </TableRow>
          </TableHead>
          <TableBody>
            {candidates.map(candidate => (
              <TableRow key={`${candidate.poolRef.kind}/${candidate.poolRef.name}`}>
                <TableCell>
                  <PoolLink claim={claim} pool={candidate.poolRef} cluster={cluster} />
                </TableCell>
                <TableCell>{candidate.reason}</TableCell>
                <TableCell>{candidate.message}</TableCell>
              </TableRow>
            ))}
          </TableBody>
        </Table>
      )}
      {omitted > 0 && <Typography>{`${omitted} more are not listed.`}</Typography>}
    </>
  );
}
