// Finds records (docs/search.py) by words, and shows the sentence that holds them.
const SMALL_WORDS = new Set('a an and are at be by can do does for from how i in is it my of on or the to use using want what when where with'.split(' '));
const WEIGHTS = {need: 1.5, page: 1.1, section: 1, name: 1.1, method: 0.7, parameter: 0.5};
const EXACT = {need: 0, page: 60, section: 10, name: 120, method: 8, parameter: 8};   // the title is what was typed
const FIRST = {create_loader: 100, PrefetchLoader: 30};   // what a word means there is what people ask for
const MOST = 40, MOST_OF_A_NAME = 4, MOST_WHILE_TYPING = 12;
const WHAT_IT_IS_FOR = 80;   // a need whose first word was typed

function stem(word) {
  return word.replace(/ies$/, 'y').replace(/([^s])s$/, '$1').replace(/(....)(ing|ed)$/, '$1').replace(/(...)e$/, '$1');
}

// a word of the query, as it may begin in a text
function pattern(word) {
  const escaped = stem(word).replace(/[.*+?^${}()|[\]\\/]/g, '\\$&').replace(/[-_]/g, '[-_ ]?');
  return {begins: new RegExp('(?<![a-z0-9])' + escaped, 'gi'), whole: new RegExp('(?<![a-z0-9])' + escaped + '(?:s|e|es|ed|d|ing)?(?![a-z0-9])', 'i')};
}

function points(text, {begins, whole}, most) {
  if (!text || text.search(begins) < 0) return 0;
  return whole.test(text) ? most : most * 0.6;
}

function score(record, typed, words) {
  const query = typed.toLowerCase();
  let total = 0, found = 0;
  for (const word of words) {
    const most = Math.max(points(record.title, word, 12), points(record.words, word, 10), points(record.owner, word, 4),
                          points(record.page, word, 3), points(record.text, word, 3));
    total += most;
    found += most > 0;
  }
  if (!found) return [0, 0];
  total *= WEIGHTS[record.kind] * (record.guide ? 1.2 : 1);
  if (record.title.toLowerCase().replaceAll('_', ' ') === query.replaceAll('_', ' ')) {
    total += (record.title === typed && record.kind !== 'method' ? 60 : 0) + EXACT[record.kind] + (record.kind === 'name' && record.offered ? 40 : 0) + (FIRST[record.owner] || 0);
  }
  if (record.kind === 'need' && words.length === 1 && words[0].whole.test(record.words.split(' ')[0])) total += WHAT_IT_IS_FOR;
  if (words.length > 1 && (` ${record.words || ''} ${record.title.toLowerCase()} `).toLowerCase().includes(query)) total += 15;
  return [total * found / words.length, found];
}

// the sentence that holds most of the words
function sentence({title, text, words: others}, words) {
  let best = '', most = -1;
  for (const one of text.split(/\n|(?<=[.!?]) +/)) {
    const count = words.filter(word => one.search(word.begins) >= 0).length;
    if (count > most) [best, most] = [one, count];
  }
  const holds = one => words.some(word => one.search(word.begins) >= 0);
  if (others && !most && !holds(title)) best += ` (${others.split(' ').filter(holds).join(', ')})`;   // the word stands for others
  if (best.length <= 260) return best;
  const at = Math.max(0, Math.min(...words.map(word => best.search(word.begins)).filter(at => at >= 0)) - 100);
  return (at ? '… ' : '') + best.slice(at, at + 250).trim() + ' …';
}

function marked(text, words) {
  const node = document.createElement('span'), all = new RegExp(words.map(word => `(?:${word.begins.source}[\\w]*)`).join('|'), 'gi');
  let at = 0;
  for (const match of text.matchAll(all)) {
    node.append(text.slice(at, match.index));
    node.appendChild(document.createElement('mark')).textContent = match[0];
    at = match.index + match[0].length;
  }
  node.append(text.slice(at));
  return node;
}

function find(query) {
  const typed = query.trim(), all = typed.toLowerCase().split(/[\s,;:()'"]+/).filter(Boolean);
  const telling = all.filter(word => !SMALL_WORDS.has(word)), words = (telling.length ? telling : all).map(pattern);
  const scored = searchRecords.map(record => [...score(record, typed, words), record]).filter(([points]) => points > 0);
  scored.sort(([a], [b]) => b - a);
  const has_all = scored.some(([, found]) => found === words.length), seen = {}, urls = new Set(), chosen = [];
  for (const [, found, record] of scored) {
    if (chosen.length === MOST) break;
    if (has_all && found < words.length) continue;
    const name = `${record.kind} ${record.kind === 'parameter' || record.kind === 'method' ? record.title : ''}`;
    seen[name] = (seen[name] || 0) + 1;
    if (name.trim() !== record.kind && seen[name] > MOST_OF_A_NAME) continue;
    if (urls.has(record.url)) continue;
    urls.add(record.url);
    chosen.push(record);
  }
  return {words, chosen};
}

// the address of a page from the one that is shown
const toRoot = () => document.documentElement.dataset.content_root || './';

function link(record, words) {
  const node = document.createElement('a'), title = marked(record.title, words);
  node.href = toRoot() + record.url;
  if (['name', 'method', 'parameter'].includes(record.kind)) node.appendChild(document.createElement('code')).append(title);
  else node.append(title);
  return node;
}

function place(record) {
  const node = document.createElement('span');
  node.className = 'where';
  node.textContent = ['parameter', 'method'].includes(record.kind) ? `${record.owner} · ${record.page}` : record.page;
  return node;
}

// all that is found, with a sentence each: the page `search.html`
function show(query) {
  const frame = document.getElementById('search-results'), {words, chosen} = find(query);
  frame.replaceChildren();
  const count = frame.appendChild(document.createElement('p'));
  count.className = 'search-count';
  count.textContent = chosen.length ? `${chosen.length} results` : 'Your search did not match any page.';
  if (!chosen.length) {
    count.append(' See ');
    Object.assign(count.appendChild(document.createElement('a')), {href: 'find.html', textContent: 'common tasks'});
    count.append(' or ');
    Object.assign(count.appendChild(document.createElement('a')), {href: 'api.html', textContent: 'the API index'});
    count.append('.');
    return;
  }
  const list = frame.appendChild(document.createElement('ul'));
  list.className = 'search';
  for (const record of chosen) {
    const item = list.appendChild(document.createElement('li'));
    item.append(link(record, words), place(record));
    item.appendChild(document.createElement('p')).append(marked(sentence(record, words), words));
  }
}

// the best of it in the sidebar, in the place of the pages
function suggest(query) {
  document.querySelector('.search-suggestions')?.remove();
  const pages = document.querySelector('.sidebar-scroll');
  pages.hidden = Boolean(query.trim());
  if (!pages.hidden) return;
  const {words, chosen} = find(query), list = document.createElement('ul');
  list.className = 'search search-suggestions';
  for (const record of chosen.slice(0, MOST_WHILE_TYPING)) list.appendChild(document.createElement('li')).append(link(record, words), place(record));
  const last = list.appendChild(document.createElement('li')).appendChild(document.createElement('a'));
  Object.assign(last, {href: `${toRoot()}search.html?q=${encodeURIComponent(query)}`, textContent: chosen.length ? 'All results' : 'Nothing found'});
  pages.before(list);
}

// the records are large: they are fetched when somebody begins to type
function withRecords(then) {
  if (typeof searchRecords !== 'undefined') return then();
  let script = document.getElementById('search-records');
  if (!script) {
    script = Object.assign(document.createElement('script'), {id: 'search-records', src: `${toRoot()}_static/search-records.js`});
    document.head.append(script);
  }
  script.addEventListener('load', then, {once: true});
}

addEventListener('DOMContentLoaded', () => {
  const query = new URLSearchParams(location.search).get('q') || '', own = document.getElementById('search-results');
  const side = document.querySelector('.sidebar-search'), large = document.querySelector('.search-form input');
  side?.addEventListener('focus', () => withRecords(() => {}));
  side?.addEventListener('input', () => withRecords(() => suggest(side.value)));
  if (!own) return;
  large.value = query;
  large.addEventListener('input', () => withRecords(() => {
    history.replaceState(null, '', `?q=${encodeURIComponent(large.value)}`);
    if (large.value.trim()) show(large.value); else own.replaceChildren();
  }));
  if (query.trim()) { document.title = `${query} - ${document.title}`; withRecords(() => show(query)); }
});
