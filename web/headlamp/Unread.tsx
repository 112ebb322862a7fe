import { Loader } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Alert } from '@mui/material';
import { isDecided, type Reading, unreadText } from './readings';

/** Renders which resources are still being read, and which the user cannot read. */
export function Unread({ readings }: { readings: Reading[] }) {
  const sentences = unreadText(readings);
  const isBroken = readings.some(({ state }) => state === 'failed' || state === 'missing');
  const loading = readings.filter(reading => !isDecided(reading)).map(({ resource }) => resource);
  return (
    <>
      {loading.length > 0 && <Loader title={`Reading ${loading.join(', ')}`} />}
      {sentences.length > 0 && (
        <Alert severity={isBroken ? 'warning' : 'info'} sx={{ mb: 1 }}>
          {sentences.map(sentence => (
            <div key={sentence}>{sentence}</div>
          ))}
        </Alert>
      )}
    </>
  );
}
